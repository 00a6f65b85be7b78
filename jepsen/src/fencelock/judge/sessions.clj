(ns fencelock.judge.sessions
  "Sessions own locks: these are held while the session certainly lives, and lost with its end.

  :open {:session :lease}, :take {:session :lease :lock :token} (:token nil: taken by another;
  :gone: there is no such session), :check {:session :lease :lock :token :held},
  :close {:session :lease :done}, :ended {:left} (after the faults: how many sessions that
  were left to expire are still there). A :lease is :long, which outlasts the run, or :short."
  (:require [fencelock.judge.pairs :as pairs]))

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
                       (and (= :take f) (not (:gone value)))))]
    {:anomaly :alive-after-close, :closed-at closed, :op op}))

(defn- opened
  "{session when the answer to its open was there}. Another one may never have been opened."
  [oks]
  (into {} (for [{:keys [f value answered-at]} oks :when (= :open f)]
             [(:session value) answered-at])))

(defn- lost-early
  "A lock of a long session is held until somebody asks for the session's end."
  [ends opened oks]
  (for [{:keys [f value asked-at answered-at] :as op} oks
        :let [closing (get-in ends [(:session value) :asked-at])]
        :when (and (= :long (:lease value)) (or (nil? closing) (< answered-at closing))
                   (some-> (get opened (:session value)) (< asked-at))
                   (or (and (= :check f) (not (:held value)))
                       (and (= :take f) (:gone value))))]
    {:anomaly :lost-early, :op op}))

(defn- granted-twice
  "While a long session certainly holds a lock, nobody else is granted it."
  [ends oks]
  (let [takes (filter #(and (= :take (:f %)) (:token (:value %))) oks)]
    (for [[_ takes] (group-by (comp :lock :value) takes)
          a takes
          :when (= :long (:lease (:value a)))
          :let [until (get-in ends [(:session (:value a)) :asked-at] Long/MAX_VALUE)]
          b takes
          :when (and (not= (:session (:value a)) (:session (:value b)))
                     (< (:answered-at a) (:asked-at b)) (< (:answered-at b) until))]
      {:anomaly :held-twice, :holder a, :other b})))

(defn- never-ended [oks]
  (for [{:keys [f value] :as op} oks
        :when (and (= :ended f) (pos? (:left value)))]
    {:anomaly :never-ended, :op op}))

(defn judge [history]
  (let [done (pairs/completed history)
        oks  (filter #(= :ok (:type %)) done)
        ends (ends done)]
    (pairs/verdict (some #(= :take (:f %)) oks)
                   (concat (after-close ends oks) (lost-early ends (opened oks) oks)
                           (granted-twice ends oks) (never-ended oks))
                   {:taken (count (filter #(and (= :take (:f %)) (:token (:value %))) oks))
                    :checks (count (filter #(= :check (:f %)) oks))
                    :closed (count (filter :answered-at (vals ends)))})))
