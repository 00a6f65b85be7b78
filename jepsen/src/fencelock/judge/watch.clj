(ns fencelock.judge.watch
  "Events of locks: none lost, none twice, in the order of the log, the same for every subscriber.

  A :hold has {:lock :owner :token :released}. A :watch has {:from :to :ended-at :events}: tokens of
  the marks that the watcher granted itself at the beginning and, if its connection lasted, at
  the end (otherwise the last grant that it saw); between them it has seen everything."
  (:require [fencelock.judge.pairs :as pairs]))

(defn- grants [watch] (filter #(= "granted" (:event %)) (:events watch)))
(defn- ends [watch] (filter #(#{"released" "expired" "broken"} (:event %)) (:events watch)))
(defn- within [watch token] (< (:from watch) token (:to watch)))

(defn- not-rising [what numbers watch]
  (for [[a b] (partition 2 1 numbers) :when (not (< a b))]
    {:anomaly what, :node (:node watch), :first a, :then b}))

(defn- order [watch]
  (concat
    (not-rising :grants-out-of-order (map :token (grants watch)) watch)
    (for [[a b] (partition 2 1 (keep :clock (:events watch))) :when (< b a)]
      {:anomaly :clock-went-back, :node (:node watch), :first a, :then b})))

(defn- ended-twice [watch]
  (for [[token events] (group-by :token (ends watch))
        [_ of-lock] (group-by :lock events)
        :when (< 1 (count of-lock))]
    {:anomaly :ended-twice, :node (:node watch), :token token, :events of-lock}))

(defn- lost [holds watch]
  (let [seen  (group-by :token (grants watch))
        ended (group-by :token (ends watch))]
    (concat
      (for [{{:keys [token lock owner]} :value} holds
            :when (and (within watch token)
                       (not-any? #(and (= lock (:lock %)) (= owner (:owner %))) (get seen token)))]
        {:anomaly :grant-not-told, :node (:node watch), :token token, :lock lock
         :told (get seen token)})
      (for [{:keys [answered-time] {:keys [token lock released]} :value} holds
            :when (and released (:ended-at watch) (within watch token)
                       (< answered-time (:ended-at watch)) (empty? (get ended token)))]
        {:anomaly :end-not-told, :node (:node watch), :token token, :lock lock}))))

(defn- unlike
  "Two subscribers hear the same grants where they overlap."
  [[a b]]
  (let [from (max (:from a) (:from b))
        to   (min (:to a) (:to b))
        part (fn [watch] (map #(select-keys % [:token :lock :owner])
                              (filter #(< from (:token %) to) (grants watch))))]
    (when (and (< from to) (not= (part a) (part b)))
      [{:anomaly :told-differently, :nodes [(:node a) (:node b)], :from from, :to to
        :only-first (take 3 (remove (set (part b)) (part a)))
        :only-second (take 3 (remove (set (part a)) (part b)))}])))

(defn judge [history]
  (let [done    (filter #(= :ok (:type %)) (pairs/completed history))
        holds   (filter #(and (= :hold (:f %)) (:token (:value %))) done)
        watches (map :value (filter #(and (= :watch (:f %)) (:from (:value %))) done))
        couples (for [[i a] (map-indexed vector watches), b (drop (inc i) watches)] [a b])]
    (pairs/verdict (and (seq holds) (seq watches))
                   (concat (mapcat order watches) (mapcat ended-twice watches)
                           (mapcat #(lost holds %) watches) (mapcat unlike couples))
                   {:holds (count holds), :watches (count watches)
                    :events (reduce + 0 (map (comp count :events) watches))
                    :resyncs (reduce + 0 (map #(:resyncs % 0) watches))})))
