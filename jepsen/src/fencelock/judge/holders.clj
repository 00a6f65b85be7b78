(ns fencelock.judge.holders
  "Who certainly holds a lock at the same time, and what tokens it was told: a sweep that always
  ends, beside the search for an order, which may not when answers are wrong.

  :acquire {:owner :mode :permits :token} (:token nil: refused), :release {:owner}. A grant is
  certain from the answer that told its token until its owner asks for its release."
  (:require [fencelock.judge.pairs :as pairs]))

(defn- first-told
  "The first answer to tell each token to its owner."
  [done]
  (vals (reduce (fn [found {:keys [value] :as op}]
                  (let [k [(:owner value) (:token value)]]
                    (if (contains? found k) found (assoc found k op))))
                {}
                (filter #(and (= :ok (:type %)) (= :acquire (:f %)) (:token (:value %))) done))))

(defn- until
  "When its owner first asked for its release."
  [done grant]
  (reduce min Long/MAX_VALUE
          (for [{:keys [f value asked-at]} done
                :when (and (= :release f) (= (:owner value) (:owner (:value grant)))
                           (< (:answered-at grant) asked-at))]
            asked-at)))

(defn- too-many
  "At the answer to b: who holds it as well, if that is more than may."
  [held b]
  (let [beside (filter #(and (not= (:owner (:value %)) (:owner (:value b)))
                             (< (:answered-at %) (:answered-at b) (:until %)))
                       held)
        modes  (set (map (comp :mode :value) (cons b beside)))
        allowed (cond (= modes #{:shared}) Long/MAX_VALUE
                      (= modes #{:permits}) (:permits (:value b))
                      :else 1)]
    (when (< allowed (inc (count beside)))
      {:anomaly :held-by-too-many, :grant b, :beside (vec beside)})))

(defn- tokens-twice [grants]
  (for [[token ops] (group-by (comp :token :value) grants) :when (< 1 (count ops))]
    {:anomaly :token-twice, :token token, :ops (vec (take 2 ops))}))

(defn- went-back
  "An owner that has asked without hearing may have been granted its token long before it is told."
  [done grants]
  (let [unsure (reduce (fn [found {:keys [type f value asked-at]}]
                         (if (and (= :info type) (= :acquire f))
                           (update found (:owner value) #(min (or % asked-at) asked-at))
                           found))
                       {} done)]
    (for [a grants, b grants
          :when (and (< (:answered-at a) (:asked-at b))
                     (< (:token (:value b)) (:token (:value a)))
                     (< (:answered-at b) (get unsure (:owner (:value b)) Long/MAX_VALUE)))]
      {:anomaly :token-went-back, :before a, :after b})))

(defn judge [history]
  (let [done   (pairs/completed history)
        grants (first-told done)
        held   (map #(assoc % :until (until done %)) grants)]
    (pairs/verdict (seq grants)
                   (concat (tokens-twice grants) (went-back done grants)
                           (keep #(too-many held %) held))
                   {:grants (count grants)})))
