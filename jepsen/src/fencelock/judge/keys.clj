(ns fencelock.judge.keys
  "One verdict for many keys. A key whose servers were away as long as it lived says nothing, and
  that is no doubt about the others.")

(defn- says-nothing?
  "Unknown only because nothing came about: not because a search was given up."
  [{:keys [valid?] :as result}]
  (and (= :unknown valid?)
       (if (contains? result :says-nothing)
         (:says-nothing result)
         (let [parts (filter #(and (map? %) (contains? % :valid?)) (vals result))]
           (boolean (and (seq parts)
                         (every? #(or (true? (:valid? %)) (says-nothing? %)) parts)))))))

(defn verdict
  "results: of each key, as independent/checker has them. :unknown when any key is so for another
  reason, or all are."
  [results]
  (let [all    (vals results)
        silent (filter (comp says-nothing? val) results)
        spoken (remove says-nothing? all)]
    {:valid?      (cond (some (comp false? :valid?) all)                     false
                        (or (empty? spoken)
                            (some #(not (true? (:valid? %))) spoken))        :unknown
                        :else                                                true)
     :silent-keys (vec (sort (map key silent)))}))
