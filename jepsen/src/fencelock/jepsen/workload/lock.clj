(ns fencelock.jepsen.workload.lock
  "Locks with tokens, by Knossos: taken alone (lock), as one of three holders (semaphore), by
  readers and writers (modes). Leases outlast the run, so that a lock is lost by nothing but its
  release.

  Each thread is one owner of each lock. After an unknown outcome it asks again as the same owner,
  and is told the token that it was granted, if it was."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.jepsen.keyed :as keyed]
            [fencelock.jepsen.knossos :as knossos]
            [fencelock.judge.holders :as judge]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.independent :as independent]))

(def ttl-ms 1800000)
(def permits 3)
(def operations-a-key 100)

(def kinds
  {:lock      {:modes [:exclusive], :threads 3}
   :semaphore {:modes [:permits], :threads 6}
   :modes     {:modes [:exclusive :shared :shared], :threads 3}})

(defn- owner [test kind key thread]
  (str "owner-" (name kind) "-" key "-" thread "-of-" (:start-time test)))

(defn- acquire! [links lock owner {:keys [mode]}]
  (apply client/lock! links "ACQUIRE" lock "OWNER" owner "TTL" ttl-ms
         (case mode
           :exclusive []
           :shared    ["MODE" "SHARED"]
           :permits   ["PERMITS" permits])))

(defn- invoke [{:keys [test] :as links} kind held op]
  (let [[key value] (:value op)
        thread (:owner value)
        place  [key thread]
        lock   (str (name kind) "-" key)
        known  (get @held place)
        done   (fn [more] (assoc op :type :ok, :value (independent/tuple key (merge value more))))]
    (case (:f op)
      :acquire (let [token (acquire! links lock (owner test kind key thread) value)]
                 (when token (swap! held assoc place token))
                 (done {:token token}))
      :release (if (nil? known)
                 (assoc op :type :fail, :error :nothing-held)
                 (do (swap! held dissoc place)
                     (done {:token known
                            :done  (= 1 (client/lock! links "RELEASE" lock known))})))
      :check   (if (nil? known)
                 (assoc op :type :fail, :error :nothing-held)
                 (done {:token known
                        :held  (= 1 (client/lock! links "CHECK" lock known))})))))

(defrecord Client [links kind held]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (client/answering op (not= :check (:f op))
      (invoke links kind held op)))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn- by-its-owner
  "A process that crashed comes back as another one of the same thread: the same owner."
  [concurrency op]
  (assoc-in op [:value :owner] (mod (:process op) concurrency)))

(defn- operations [modes]
  (gen/mix [(fn [] {:f :acquire, :value {:mode (rand-nth modes), :permits permits}})
            (fn [] {:f :acquire, :value {:mode (rand-nth modes), :permits permits}})
            (fn [] {:f :release, :value {}})
            (fn [] {:f :release, :value {}})
            (fn [] {:f :check, :value {}})]))

(defn- holders []
  (reify checker/Checker
    (check [_ _ history _]
      (judge/judge history))))

(def most-pending
  "Knossos explains a wrong answer by every order of the operations without one: so many still have
  orders that fit into memory."
  6)

(defn- explained?
  "Whether an order is worth looking for although it is certain that there is none: for the picture
  of a plain lock. Of semaphores and modes all would be tried, for minutes."
  [kind history]
  (and (= :lock kind)
       (<= (count (filter #(= :info (:type %)) history)) most-pending)))

(defn- checks
  "An order that explains the answers; and, at once, that no two hold what they cannot both hold."
  [kind]
  (let [order (knossos/checker (knossos/lock))]
    (reify checker/Checker
      (check [_ test history opts]
        (let [held  (checker/check (holders) test history opts)
              found (if (and (false? (:valid? held)) (not (explained? kind history)))
                      {:valid? :unknown, :cause :not-looked-for}
                      (checker/check order test history opts))]
          {:valid?  (checker/merge-valid [(:valid? held) (:valid? found)])
           :holders held
           :order   found})))))

(defn workload [kind opts]
  (let [{:keys [modes threads]} (kinds kind)]
    {:client    (->Client nil kind (atom {}))
     :generator (independent/concurrent-generator
                  threads (range)
                  (fn [_]
                    (->> (operations modes)
                         (gen/map (fn [op] (by-its-owner (:concurrency opts) op)))
                         (gen/stagger (client/key-interval opts threads))
                         (gen/limit operations-a-key))))
     :final     nil
     :checker   (keyed/checker (checks kind))}))
