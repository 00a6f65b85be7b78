(ns fencelock.judge.sessions
  "Sessions own locks: these are held while the session certainly lives, and lost with its end.

  :open {:session :lease}, :renew {:session :lease :gone}, :take {:session :lease :lock :token}
  (:token nil: taken by another; :gone: there is no such session), :check {:session :lease :lock
  :token :held}, :close {:session :lease :done}, :ended {:left} (after the faults: how many
  sessions that were left to expire are still there).

  The history's clock is the clients' own monotonic one, and an operation is in it before its
  request is sent. So a session lives at least its lease longer than the time at which its opening,
  or a renewal that was acknowledged, was asked for."
  (:require [fencelock.judge.pairs :as pairs]))

(def leases
  "Milliseconds by the kind of a session. A long one outlasts the run, a kept one is renewed."
  {:long 1800000, :short 700, :kept 2000})

(defn- ends
  "{session {:asked-at of its first close, :answered-at of the first that was answered}}"
  [done]
  (reduce (fn [found {:keys [value type asked-at answered-at]}]
            (let [session (:session value)]
              (cond-> (update-in found [session :asked-at] #(min (or % asked-at) asked-at))
                (= :ok type) (update-in [session :answered-at]
                                        #(min (or % answered-at) answered-at)))))
          {}
          (filter #(= :close (:f %)) done)))

(defn- after-close
  "What is asked after the answer to a close must find the session and its locks gone."
  [ends oks]
  (for [{:keys [f value asked-at] :as op} oks
        :let [closed (get-in ends [(:session value) :answered-at])]
        :when (and closed (< closed asked-at)
                   (or (and (= :check f) (:held value))
                       (and (#{:take :renew} f) (not (:gone value)))))]
    {:anomaly :alive-after-close, :closed-at closed, :op op}))

(defn- opened
  "{session when the answer to its open was there}. Another one may never have been opened."
  [oks]
  (into {} (for [{:keys [f value answered-at]} oks :when (= :open f)]
             [(:session value) answered-at])))

(defn- lives-until
  "{session the time until which it certainly lives, unless it is closed}. fast: how many seconds a
  server's clock may count in one."
  [fast oks]
  (reduce (fn [found {:keys [value asked-time]}]
            (let [lease (* 1000000 (/ (leases (:lease value)) fast))]
              (update found (:session value) (fnil max 0) (+ asked-time lease))))
          {}
          (filter #(or (= :open (:f %)) (and (= :renew (:f %)) (not (:gone (:value %))))) oks)))

(defn- certain?
  "Whether the session certainly lived when this operation was answered."
  [{:keys [ends until]} session {:keys [answered-at answered-time]}]
  (and (< answered-time (get until session 0))
       (< answered-at (get-in ends [session :asked-at] Long/MAX_VALUE))))

(defn- lost-early
  "A session and its locks are there as long as it certainly lives."
  [{:keys [opened] :as known} oks]
  (for [{:keys [f value asked-at] :as op} oks
        :let [session (:session value)]
        :when (and (some-> (get opened session) (< asked-at))
                   (certain? known session op)
                   (or (and (= :check f) (not (:held value)))
                       (and (#{:take :renew} f) (:gone value))))]
    {:anomaly :lost-early, :op op}))

(defn- granted-twice
  "While a session certainly holds a lock, nobody else is granted it. Of two that asked at the same
  time, the larger token was granted later."
  [known oks]
  (let [takes (filter #(and (= :take (:f %)) (:token (:value %))) oks)]
    (for [[_ takes] (group-by (comp :lock :value) takes)
          a takes
          b takes
          :let [session (:session (:value a))]
          :when (and (not= session (:session (:value b)))
                     (or (< (:answered-at a) (:asked-at b))
                         (< (:token (:value a)) (:token (:value b))))
                     (certain? known session b))]
      {:anomaly :held-twice, :holder a, :other b})))

(defn- never-ended [oks]
  (for [{:keys [f value] :as op} oks
        :when (and (= :ended f) (pos? (:left value)))]
    {:anomaly :never-ended, :op op}))

(defn- outlived
  "How many sessions lived on by renewals alone."
  [until oks]
  (count (filter (fn [{:keys [f value answered-time]}]
                   (and (= :open f) (= :kept (:lease value))
                        (< (+ answered-time (* 1000000 (:kept leases)))
                           (get until (:session value)))))
                 oks)))

(defn judge
  "fast: how many seconds a server's clock may count in one, for the faults of the run."
  ([history] (judge 1 history))
  ([fast history]
   (let [done  (pairs/completed history)
         oks   (filter #(= :ok (:type %)) done)
         known {:ends (ends done), :until (lives-until fast oks), :opened (opened oks)}]
     (pairs/verdict (some #(= :take (:f %)) oks)
                    (concat (after-close (:ends known) oks) (lost-early known oks)
                            (granted-twice known oks) (never-ended oks))
                    {:taken (count (filter #(and (= :take (:f %)) (:token (:value %))) oks))
                     :checks (count (filter #(= :check (:f %)) oks))
                     :closed (count (filter :answered-at (vals (:ends known))))
                     :outlived (outlived (:until known) oks)}))))
