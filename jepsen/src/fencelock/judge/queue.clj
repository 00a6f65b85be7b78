(ns fencelock.judge.queue
  "Waits are first come, first served: who is known to stand in the queue (or to hold the lock)
  before another asks is granted before that one. And promise 5: after the faults each client
  gets the lock that all of them ask for, in bounded time.

  A :wait has {:lock :token :queued-at}: the time at which its place was seen, nil if it was not.
  A :last is the same, after the faults."
  (:require [fencelock.judge.pairs :as pairs]))

(def last-bound-s 45)

(defn- overtaken
  "Of one lock: sweeps over requests by when they were asked, with the largest token of those whose
  place was seen before."
  [grants]
  (loop [asked  (sort-by :asked-time grants)
         placed (sort-by (comp :queued-at :value) (filter (comp :queued-at :value) grants))
         top    nil
         found  []]
    (if-let [b (first asked)]
      (let [[before after] (split-with #(< (:queued-at (:value %)) (:asked-time b)) placed)
            top (reduce (fn [top a]
                          (if (or (nil? top) (< (:token (:value top)) (:token (:value a)))) a top))
                        top before)]
        (recur (rest asked) after top
               (if (and top (< (:token (:value b)) (:token (:value top))))
                 (conj found {:anomaly :overtaken, :first top, :later b})
                 found)))
      found)))

(defn judge
  "expected: how many clients must have been granted a :last; nil asks for none."
  [expected history]
  (let [done   (pairs/completed history)
        grants (filter #(and (= :ok (:type %)) (= :wait (:f %))) done)
        lasts  (filter #(and (= :ok (:type %)) (= :last (:f %))) done)
        slow   (filter #(< (* last-bound-s 1000000000) (- (:answered-time %) (:asked-time %)))
                       lasts)]
    (pairs/verdict
      (seq grants)
      (concat (mapcat overtaken (vals (group-by (comp :lock :value) grants)))
              (when (and expected (< (count lasts) expected))
                [{:anomaly :not-granted-after-the-faults, :granted (count lasts)
                  :expected expected}])
              (for [op slow] {:anomaly :late-after-the-faults, :op op}))
      {:granted (count grants), :last-granted (count lasts)
       :places-seen (count (filter (comp :queued-at :value) grants))})))
