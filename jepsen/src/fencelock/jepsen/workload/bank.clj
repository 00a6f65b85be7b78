(ns fencelock.jepsen.workload.bank
  "Moves between accounts, each under the locks of both and one token (ALSO), in either order.
  There are sets of accounts, a new one after a hundred moves."
  (:require [clojure.edn :as edn]
            [fencelock.jepsen.client :as client]
            [fencelock.jepsen.keyed :as keyed]
            [fencelock.judge.bank :as judge]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.history :as h]
            [jepsen.independent :as independent]))

(def accounts 4)
(def moves-a-key 100)
(def ttl-ms 1000)
(def wait-ms 3000)

(defn- account [key n] (str "bank-" key "-" n))

(defn- acquire! [links key ns]
  (let [[first & more] (map #(account key %) ns)]
    (apply client/lock! links "ACQUIRE" first "TTL" ttl-ms "OWNER" (client/new-owner)
           "WAIT" wait-ms (mapcat #(vector "ALSO" %) more))))

(defn- look
  "The moves of an account. Reading with the token claims."
  [{:keys [test] :as links} key n token]
  (let [name (account key n)]
    (edn/read-string
      (or (if (:no-claim test)
            (client/store! links "GET" name)
            (client/store! links "GET" name "FENCE" name token))
          "{}"))))

(defn- put! [links key n token moves]
  (let [name (account key n)]
    (client/store! links "SET" name (pr-str moves) "FENCE" name token)))

(defn- move!
  "sent?: set once the first of the two writes was sent."
  [links key {:keys [from to amount id]} token sent?]
  (let [a (look links key from token)
        b (look links key to token)]
    (client/pause-before-write! (:test links) ttl-ms)
    (reset! sent? true)
    (put! links key from token (assoc a id (- amount)))
    (put! links key to token (assoc b id amount))))

(defn- invoke [links op]
  (let [[key value] (:value op)
        ns    (if (= :move (:f op)) [(:from value) (:to value)] (:accounts value))
        token (acquire! links key ns)
        sent? (atom false)]
    (if (nil? token)
      (assoc op :type :fail, :error :held)
      (try
        (if (= :move (:f op))
          (do (move! links key value token sent?)
              (assoc op :type :ok))
          (let [seen (into {} (for [n ns] [n (look links key n token)]))]
            (assoc op :type :ok, :value (independent/tuple key {:accounts seen}))))
        (catch clojure.lang.ExceptionInfo e
          ; Refused in the middle, it is there by half.
          (assoc op :type (if @sent? :info :fail), :error (:word (ex-data e))))
        (finally
          (client/quietly #(client/lock! links "RELEASE" (account key (first ns)) token)))))))

(defrecord Client [links]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (client/answering op false
      (invoke links op)))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn- operations
  "Moves and reads. What a missing claim lets through needs two slow clients in a row at the same
  accounts: then all moves are between two of them, and there are more."
  [opts _key]
  (let [ids   (atom 0)
        among (if (:no-claim opts) 2 accounts)
        move  (fn []
                (let [[from to] (shuffle (range among))]
                  {:f :move, :value {:from from, :to to, :amount (inc (rand-int 10))
                                     :id (swap! ids inc)}}))
        look  (fn [n]
                (fn []
                  {:f :read, :value {:accounts (vec (take n (shuffle (range accounts))))}}))]
    (->> (gen/mix (if (:no-claim opts)
                    [move move move (look accounts)]
                    [move (look 2) (look accounts)]))
         (gen/limit (* 2 moves-a-key)))))

(defn workload [opts]
  (let [threads (:concurrency opts)]
    {:client    (->Client nil)
     :generator (independent/concurrent-generator
                  threads (range)
                  (fn [key] (gen/stagger (/ (:rate opts)) (operations opts key))))
     :final     nil
     :checker   (keyed/checker
                  (reify checker/Checker
                    (check [_ _ history _]
                      (judge/judge accounts (h/client-ops history)))))}))
