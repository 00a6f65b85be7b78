(ns fencelock.judge.bank
  "Accounts that are moved between in pairs, under both locks and one token. An account is a map of
  the moves that it has seen, each with what it changed.

  A move that was acknowledged is in both accounts, for every read that was asked for later. Who
  reads both accounts under both locks sees both halves of it, or none. Only a move that was
  not acknowledged may be there by half, when its writer was fenced off between the two writes.
  With the halves that nobody acknowledged left out, all changes add up to nothing."
  (:require [fencelock.judge.pairs :as pairs]))

(defn- acknowledged
  "{id {:index of its answer, :from, :to, :amount}}"
  [history]
  (into {} (for [op history :when (and (= :ok (:type op)) (= :move (:f op)))]
             [(:id (:value op)) (assoc (:value op) :index (:index op))])))

(defn- invoked-at
  "[index of the request, completed read] of each read."
  [history]
  (loop [open {}, history history, found []]
    (if-let [op (first history)]
      (case (:type op)
        :invoke (recur (assoc open (:process op) (:index op)) (rest history) found)
        :ok (recur (dissoc open (:process op)) (rest history)
                   (if (= :read (:f op))
                     (conj found [(get open (:process op)) op])
                     found))
        (recur (dissoc open (:process op)) (rest history) found))
      found)))

(defn- read-anomalies
  "accounts: {account {move change}} as one read saw them."
  [moves [asked-at op]]
  (let [accounts (:accounts (:value op))
        present  (fn [account id] (contains? (get accounts account) id))]
    (concat
      (for [[id {:keys [index from to]}] moves
            account [from to]
            :when (and (contains? accounts account) (< index asked-at)
                       (not (present account id)))]
        {:anomaly :lost, :move id, :account account, :acknowledged-at index, :read op})
      (for [[id {:keys [from to]}] moves
            :when (and (contains? accounts from) (contains? accounts to)
                       (not= (present from id) (present to id)))]
        {:anomaly :half-a-move, :move id, :read op}))))

(defn- sum-anomaly
  "Of a read of all accounts: the changes of acknowledged moves add up to nothing."
  [moves n [_ op]]
  (let [accounts (:accounts (:value op))]
    (when (= n (count accounts))
      (let [sum (reduce + (for [changes (vals accounts), [id change] changes
                                :when (contains? moves id)]
                            change))]
        (when-not (zero? sum)
          [{:anomaly :sum, :sum sum, :read op}])))))

(defn judge
  "n: how many accounts there are."
  [n history]
  (let [history (map-indexed (fn [i op]
                               (assoc (select-keys op [:type :process :f :value]) :index i))
                             (filter (comp number? :process) history))
        moves   (acknowledged history)
        reads   (invoked-at history)
        all     (concat (mapcat #(read-anomalies moves %) reads)
                        (mapcat #(sum-anomaly moves n %) reads))]
    {:valid?        (if (seq all) false (if (and (seq moves) (seq reads)) true :unknown))
     :says-nothing  (boolean (and (empty? all) (or (empty? moves) (empty? reads))))
     :moves         (count moves)
     :reads         (count reads)
     :anomaly-count (count all)
     :anomalies     (vec (take pairs/shown all))}))
