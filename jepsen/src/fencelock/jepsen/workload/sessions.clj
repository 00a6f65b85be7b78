(ns fencelock.jepsen.workload.sessions
  "Sessions that hold several locks. Each thread lives through one after the other: opens it, takes
  locks with it, or waits for them, asks whether they are held, and closes it, or leaves it to its
  end. Some live by renewals alone, so that others wait for what they hold while nodes fail."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.jepsen.db :as fdb]
            [fencelock.judge.sessions :as judge]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]))

(def locks
  "Of long sessions, which may keep them to the end of the run, and of all others."
  8)
(def end-seconds 40)
(def wait-ms "How long a client waits for a lock, unless it has a session to renew." 1000)

(defn- open! [links state op]
  (let [lease   (:value op)
        session (client/new-owner)
        value   {:session session, :lease lease}]
    ; Noted before it is sent: what may be open has to end as well.
    (swap! state update :left into (when-not (= :long lease) [session]))
    (swap! state assoc :now (assoc value :held []))
    (client/lock! links "SESSION" "OPEN" session "TTL" (judge/leases lease))
    (assoc op :type :ok, :value value)))

(defn- take! [links state op]
  (let [{:keys [session lease]} (:now @state)
        lock  (str (if (= :long lease) "long-" "session-") (rand-int locks))
        value {:session session, :lease lease, :lock lock}]
    (try
      (let [wait  (when (not= :kept lease) (rand-nth [nil ["WAIT" wait-ms]]))
            token (apply client/lock! links "ACQUIRE" lock "SESSION" session wait)]
        (when token (swap! state update-in [:now :held] conj [lock token]))
        (assoc op :type :ok, :value (assoc value :token token)))
      (catch clojure.lang.ExceptionInfo e
        (if (= :nosession (:word (ex-data e)))
          (assoc op :type :ok, :value (assoc value :gone true))
          (throw e))))))

(defn- renew! [links op {:keys [session lease]}]
  (let [gone? (zero? (client/lock! links "SESSION" "RENEW" session))]
    (assoc op :type :ok
              :value (cond-> {:session session, :lease lease} gone? (assoc :gone true)))))

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
  "Waits until the sessions of this thread that nobody renews any more are gone."
  [links state op]
  (let [sessions (:left @state)]
    (client/quietly
      #(try (fdb/await-true "the end of sessions" end-seconds
                            (fn [] (zero? (still-there links sessions))))
            (catch clojure.lang.ExceptionInfo _ nil)))
    (assoc op :type :ok, :value {:left (still-there links sessions)})))

(defn- invoke [links state op]
  (if (and (nil? (:now @state)) (not (#{:open :ended} (:f op))))
    (assoc op :type :fail, :error :no-session-yet)
    (case (:f op)
      :open   (open! links state op)
      :take   (take! links state op)
      :renew  (renew! links op (:now @state))
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

(defn- kept-life
  "Longer than a few leases. Only renewals keep it, and nobody closes it at the end."
  []
  (concat [{:f :open, :value :kept} {:f :take} {:f :take} {:f :take}]
          (repeatedly (+ 25 (rand-int 25))
                      #(hash-map :f (rand-nth [:renew :renew :check :take])))))

(defn- life [lease]
  (concat [{:f :open, :value lease}]
          (repeatedly (+ 3 (rand-int 10)) #(hash-map :f (rand-nth [:take :take :check :look])))
          (when (or (= :long lease) (pos? (rand-int 4)))
            [{:f :close} {:f :look} {:f :take}])))

(defn- any-life
  "Kept lives are long: with one in seven, half of the requests are theirs."
  []
  (case (rand-nth [:long :long :long :long :short :short :kept])
    :long  (life :long)
    :short (life :short)
    :kept  (kept-life)))

(defn- fast
  "How many seconds a server's clock counts in one at most, under these faults."
  [opts]
  (if (some #{:clock} (:faults opts)) 6/5 1))

(defn workload [opts]
  {:client    (->Client nil (atom {}))
   :generator (gen/stagger (/ (:rate opts))
                           (gen/each-thread (mapcat (fn [_] (any-life)) (range))))
   :final     (gen/each-thread (gen/once {:f :ended}))
   :checker   (reify checker/Checker
                (check [_ _ history _]
                  ; A look is a check of the session before.
                  (judge/judge (fast opts)
                               (map #(if (= :look (:f %)) (assoc % :f :check) %) history))))})
