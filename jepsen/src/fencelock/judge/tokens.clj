(ns fencelock.judge.tokens
  "Promise 1: no two grants share a token, and a grant that starts after another has completed has
  the larger one, over all locks. Judges a history of plain maps, in order.

  An operation is a map with :type (:invoke, :ok, :fail, :info), :process, :f and, when it is :ok,
  a :value with :token. :f may be anything: all tokens come from one counter."
  (:require [fencelock.judge.pairs :as pairs]))

(defn- twice [oks]
  (for [[token ops] (group-by (comp :token :value) oks)
        :when (< 1 (count ops))]
    {:anomaly :token-twice, :token token, :ops (vec (take 2 ops))}))

(defn- step
  "floors: of each process with an open request, the highest token completed before, and its op."
  [{:keys [highest floors found] :as state} op]
  (case (:type op)
    :invoke (assoc-in state [:floors (:process op)] highest)
    :ok (let [token (:token (:value op))
              floor (get floors (:process op))]
          (cond-> (assoc state :floors (dissoc floors (:process op)))
            (and token floor (<= token (:token (:value floor))))
            (assoc :found (conj found {:anomaly :token-went-back, :before floor, :after op}))

            (and token (or (nil? highest) (< (:token (:value highest)) token)))
            (assoc :highest op)))
    (update state :floors dissoc (:process op))))

(defn judge
  "{:valid? ..., :tokens how many, :anomalies [...]}"
  [history]
  (let [history (filter (comp number? :process) history)
        oks     (filter #(and (= :ok (:type %)) (:token (:value %))) history)
        back    (:found (reduce step {:highest nil, :floors {}, :found []} history))
        wrong   (filter #(not (< 0 (:token (:value %)) 9007199254740992)) oks)
        all     (concat (twice oks) back
                        (for [op wrong] {:anomaly :not-a-token, :ops [op]}))]
    {:valid?        (empty? all)
     :tokens        (count oks)
     :highest       (reduce max 0 (map (comp :token :value) oks))
     :anomaly-count (count all)
     :anomalies     (vec (take pairs/shown all))}))
