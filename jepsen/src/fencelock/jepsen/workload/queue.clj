(ns fencelock.jepsen.workload.queue
  "Waits: who stands in the queue is granted before who asks later, also over changes of the leader;
  and after the faults every client is granted the lock that all ask for.

  A client asks for the lock on one connection, looks on a second one whether it stands in the queue
  or holds the lock, and notes when it has seen that."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.judge.queue :as judge]
            [fencelock.wire :as wire]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.util :as util]))

(def locks 2)
(def ttl-ms 2000)
(def wait-ms 5000)
(def last-wait-ms 40000)

(defn- stands?
  "Whether SHOW has this owner among the holders or in the queue."
  [reply owner]
  (let [{:keys [held_by queue]} (wire/fields reply)]
    (boolean (some #(= owner (:owner (wire/fields %))) (concat held_by queue)))))

(defn- seen-at
  "When its place was seen, or nil."
  [links lock owner]
  (client/quietly
    #(when (stands? (client/lock! links "SHOW" lock) owner)
       (util/relative-time-nanos))))

(defn- wait! [links op lock wait-ms]
  (let [owner (client/new-owner)
        conn  (client/connect links (client/at links))]
    (try
      (wire/timeout! conn (+ wait-ms client/timeout-ms))
      (wire/send! conn "ACQUIRE" lock "TTL" ttl-ms "OWNER" owner "WAIT" wait-ms)
      (let [at    (seen-at links lock owner)
            token (wire/receive conn)]
        (if (nil? token)
          (assoc op :type :fail, :error :held)
          (do (Thread/sleep (long (rand-int 20)))
              (client/quietly #(client/lock! links "RELEASE" lock token))
              (assoc op :type :ok, :value {:lock lock, :token token, :queued-at at}))))
      (finally (wire/close! conn)))))

(defrecord Client [links]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (client/answering op true
      (case (:f op)
        :wait (wait! links op (str "queue-" (:value op)) wait-ms)
        :last (wait! links op "queue-last" last-wait-ms))))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn workload [opts]
  {:client    (->Client nil)
   :generator (gen/stagger (/ (:rate opts)) (fn [] {:f :wait, :value (rand-int locks)}))
   :final     (gen/each-thread (gen/once {:f :last}))
   :checker   (reify checker/Checker
                (check [_ test history _]
                  (judge/judge (:concurrency test) history)))})
