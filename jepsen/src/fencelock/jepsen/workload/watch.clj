(ns fencelock.jepsen.workload.watch
  "Events: two threads subscribe for a while each, the others take and give back locks."
  (:require [clojure.string :as str]
            [fencelock.jepsen.client :as client]
            [fencelock.judge.watch :as judge]
            [fencelock.wire :as wire]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.util :as util]))

(def locks 6)
(def ttl-ms 5000)
(def watch-ms 2500)

(defn parse-event
  "{:event :lock :token :owner :clock}, from a message."
  [[_ _ channel text]]
  (let [words (into {} (map #(let [[k v] (str/split % #"=" 2)] [(keyword k) v]))
                    (str/split text #" "))]
    (cond-> {:event (:event words), :lock (subs channel (min 5 (count channel)))}
      (:token words) (assoc :token (parse-long (:token words)))
      (:owner words) (assoc :owner (:owner words))
      (:clock words) (assoc :clock (parse-long (:clock words))))))

(defn- next-event [conn] (parse-event (wire/receive conn)))

(defn- until-mark
  "Events up to the grant of this token."
  [conn token]
  (loop [events []]
    (let [event (next-event conn)
          events (conj events event)]
      (if (and (= "granted" (:event event)) (= token (:token event)))
        events
        (recur events)))))

(defn- mark! [links]
  (let [lock  (str "watch-mark-" (rand-int 1000000000))
        token (client/lock! links "ACQUIRE" lock "TTL" ttl-ms "OWNER" (client/new-owner))]
    (client/quietly #(client/lock! links "RELEASE" lock token))
    token))

(defn- listen
  "Events for a while. Ends early, with :broken, when the connection does."
  [conn links from]
  (let [deadline (+ (System/nanoTime) (* 1000000 watch-ms))]
    (loop [events []]
      (let [step (try
                   (if (< (System/nanoTime) deadline)
                     (conj events (next-event conn))
                     (let [at    (util/relative-time-nanos)
                           token (mark! links)]
                       (if token
                         {:events (into events (until-mark conn token)), :to token, :ended-at at}
                         {:events events, :broken true})))
                   (catch clojure.lang.ExceptionInfo _
                     {:events events, :broken true}))]
        (if (vector? step)
          (recur step)
          (assoc step :from from))))))

(defn- last-grant [from events]
  (reduce max from (keep :token (filter #(= "granted" (:event %)) events))))

(defn- before-gap
  "A gap that the node tells of ends what can be judged."
  [{:keys [events from] :as watch}]
  (let [whole (vec (take-while #(not= "resync" (:event %)) events))
        gap?  (< (count whole) (count events))]
    (cond-> (assoc watch :events whole)
      gap? (assoc :resyncs 1)
      (or gap? (:broken watch)) (-> (dissoc :ended-at)
                                    (assoc :to (last-grant from whole))))))

(defn- watch! [links op]
  (let [node (client/at links)
        conn (client/connect links node)]
    (try
      (wire/call conn "PSUBSCRIBE" "lock:watch-*")
      (let [from (mark! links)]
        (if (nil? from)
          (assoc op :type :fail, :error :no-mark)
          (do (until-mark conn from)
              (assoc op :type :ok
                        :value (assoc (before-gap (listen conn links from)) :node node)))))
      (finally (wire/close! conn)))))

(defn- hold! [links op]
  (let [lock  (str "watch-" (rand-int locks))
        owner (client/new-owner)
        token (client/lock! links "ACQUIRE" lock "TTL" ttl-ms "OWNER" owner)]
    (if (nil? token)
      (assoc op :type :fail, :error :held)
      (let [answer (client/quietly #(client/lock! links "RELEASE" lock token))]
        (assoc op :type :ok
                  :value {:lock lock, :owner owner, :token token, :released (= 1 answer)})))))

(defrecord Client [links]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (case (:f op)
      :watch (client/answering op false (watch! links op))
      :hold  (client/answering op true (hold! links op))))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn workload [opts]
  {:client    (->Client nil)
   :generator (gen/reserve 2 (repeat {:f :watch})
                           (gen/stagger (/ (:rate opts)) (repeat {:f :hold})))
   :final     nil
   :checker   (reify checker/Checker
                (check [_ _ history _]
                  (judge/judge history)))})
