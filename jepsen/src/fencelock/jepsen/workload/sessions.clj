(ns fencelock.jepsen.workload.sessions
  "Sessions that hold several locks. Each thread lives through one after the other: opens it, takes
  locks with it, asks whether they are held, and closes it, or leaves it to its end."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.jepsen.db :as fdb]
            [fencelock.judge.sessions :as judge]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]))

(def locks 8)
(def leases {:long 1800000, :short 700})
(def end-seconds 40)

(defn- open! [links state op]
  (let [lease   (rand-nth [:long :long :short])
        session (client/new-owner)
        value   {:session session, :lease lease}]
    ; Noted before it is sent: what may be open has to end as well.
    (swap! state update :left into (when (= :short lease) [session]))
    (swap! state assoc :now (assoc value :held []))
    (client/lock! links "SESSION" "OPEN" session "TTL" (leases lease))
    (assoc op :type :ok, :value value)))

(defn- take! [links state op]
  (let [{:keys [session lease]} (:now @state)
        lock  (str "session-" (rand-int locks))
        value {:session session, :lease lease, :lock lock}]
    (try
      (let [token (client/lock! links "ACQUIRE" lock "SESSION" session)]
        (when token (swap! state update-in [:now :held] conj [lock token]))
        (assoc op :type :ok, :value (assoc value :token token)))
      (catch clojure.lang.ExceptionInfo e
        (if (= :nosession (:word (ex-data e)))
          (assoc op :type :ok, :value (assoc value :gone true))
          (throw e))))))

(defn- check! [links op {:keys [session lease held]}]
  (if (empty? held)
    (assoc op :type :fail, :error :nothing-held)
    (let [[lock token] (rand-nth held)]
      (assoc op :type :ok
                :value {:session session, :lease lease, :lock lock, :token token
                        :held (= 1 (client/lock! links "CHECK" lock token))}))))

(defn- close! [links state op]
  (let [{:keys [session lease]} (:now @state)
        value {:session session, :lease lease}]
    (swap! state assoc :before (:now @state))
    (assoc op :type :ok
              :value (assoc value :done (= 1 (client/lock! links "SESSION" "CLOSE" session))))))

(defn- still-there [links sessions]
  (count (filter #(some? (client/lock! links "SESSION" "SHOW" %)) sessions)))

(defn- ended!
  "Waits until the short sessions of this thread are gone."
  [links state op]
  (let [sessions (:left @state)]
    (client/quietly
      #(try (fdb/await-true "the end of short sessions" end-seconds
                            (fn [] (zero? (still-there links sessions))))
            (catch clojure.lang.ExceptionInfo _ nil)))
    (assoc op :type :ok, :value {:left (still-there links sessions)})))

(defn- invoke [links state op]
  (if (and (nil? (:now @state)) (not (#{:open :ended} (:f op))))
    (assoc op :type :fail, :error :no-session-yet)
    (case (:f op)
      :open   (open! links state op)
      :take   (take! links state op)
      :check  (check! links op (:now @state))
      :look   (if-let [before (:before @state)]
                (-> (check! links (assoc op :f :check) before) (assoc :f :look))
                (assoc op :type :fail, :error :none-before))
      :close  (close! links state op)
      :ended  (ended! links state op))))

(defn- with-session
  "What the request was about, also when its outcome is not known."
  [before op]
  (cond-> op
    (and (#{:info :fail} (:type op)) (nil? (:value op)) (:now before))
    (assoc :value (select-keys (:now before) [:session :lease]))))

(defrecord Client [links states]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ test op]
    (let [thread (mod (:process op) (:concurrency test))
          state  (get (swap! states update thread #(or % (atom {:left []}))) thread)
          before @state]
      (with-session before
        (client/answering op (not (#{:check :look} (:f op)))
          (invoke links state op)))))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn- life []
  (concat [{:f :open}]
          (repeatedly (+ 3 (rand-int 10)) #(hash-map :f (rand-nth [:take :take :check :look])))
          (when (pos? (rand-int 4)) [{:f :close} {:f :look} {:f :take}])))

(defn workload [opts]
  {:client    (->Client nil (atom {}))
   :generator (gen/stagger (/ (:rate opts))
                           (gen/each-thread (mapcat (fn [_] (life)) (range))))
   :final     (gen/each-thread (gen/once {:f :ended}))
   :checker   (reify checker/Checker
                (check [_ _ history _]
                  ; A look is a check of the session before.
                  (judge/judge (map #(if (= :look (:f %)) (assoc % :f :check) %) history))))})
