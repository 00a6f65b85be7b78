(ns fencelock.judge.pairs
  "Requests with their answers, for judges that need to know when something was asked.")

(defn completed
  "Each completed operation of a client, with :asked-at and :answered-at (places in the history)
  and :asked-time and :answered-time (nanoseconds, where the history has them), in the order of
  answers."
  [history]
  (loop [open {}, i 0, history (filter (comp number? :process) history), found []]
    (if-let [op (first history)]
      (if (= :invoke (:type op))
        (recur (assoc open (:process op) [i op]) (inc i) (rest history) found)
        (let [[asked-at asked] (get open (:process op))]
          (recur (dissoc open (:process op)) (inc i) (rest history)
                 (conj found {:type (:type op), :process (:process op), :f (:f op)
                              :value (:value op), :error (:error op)
                              :asked-at asked-at, :answered-at i
                              :asked-time (:time asked), :answered-time (:time op)}))))
      found)))

(def shown "How many anomalies are told." 10)

(defn verdict
  "The usual answer of a judge. enough?: whether the history says anything at all."
  [enough? anomalies more]
  (merge more {:valid?        (cond (seq anomalies) false, enough? true, :else :unknown)
               :says-nothing  (not (or enough? (seq anomalies)))
               :anomaly-count (count anomalies)
               :anomalies     (vec (take shown anomalies))}))
