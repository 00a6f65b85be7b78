(ns fencelock.jepsen.workload.append
  "Lists in the storage, read and appended to under locks: strict serializability, judged by Elle.

  A transaction takes the lock of its key, reads with its token (which claims), and writes with it.
  Now and then it pauses between the two for longer than its lease, so that the next holder has
  read meanwhile: its write must be refused. --no-fencing and --no-claim show what happens
  otherwise."
  (:require [clojure.string :as str]
            [elle.list-append :as elle]
            [fencelock.jepsen.client :as client]
            [fencelock.jepsen.tools :as tools]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.tests.cycle.append :as append]))

(def ttl-ms 1000)
(def wait-ms 2000)

(defn- parse [text] (if (str/blank? text) [] (mapv parse-long (str/split text #","))))

(defn- apply-mops
  "The list after these micro-operations, and them with what they read."
  [values mops]
  (reduce (fn [[values done] [f k v]]
            (case f
              :r      [values (conj done [:r k values])]
              :append [(conj values v) (conj done [:append k v])]))
          [values []]
          mops))

(defn- under-token
  "The transaction itself, with a token for its lock."
  [{:keys [test] :as links} op lock token]
  (let [mops (:value op)
        text (if (:no-claim test)
               (client/store! links "GET" lock)
               (client/store! links "GET" lock "FENCE" lock token))
        [values done] (apply-mops (parse text) mops)]
    (when (some #(= :append (first %)) mops)
      (client/pause-before-write! test ttl-ms)
      (client/store! links "SET" lock (str/join "," values) "FENCE" lock token))
    (assoc op :type :ok, :value done)))

(defn- writes? [op] (some #(= :append (first %)) (:value op)))

(defn- transact! [links op acquire release]
  (let [lock  (str "append-" (second (first (:value op))))
        grant (acquire links lock)]
    (if (nil? grant)
      (assoc op :type :fail, :error :held)
      (try
        (client/answering op (writes? op)
          (under-token links op lock (:token grant)))
        (finally (release links lock grant))))))

(defn- acquire!
  "{:token ...}, or nil when others have the lock."
  [links lock]
  (when-let [token (client/lock! links "ACQUIRE" lock "TTL" ttl-ms "OWNER" (client/new-owner)
                                 "WAIT" wait-ms)]
    {:token token}))

(defn- release! [links lock {:keys [token]}]
  (client/quietly #(client/lock! links "RELEASE" lock token)))

(defrecord Client [links acquire release]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    ; What fails before the transaction has begun, when the lock is asked for, has changed nothing.
    (client/answering op false
      (transact! links op acquire release)))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn- of-one-key
  "The micro-operations of the first one's key, since a lock covers one key here; the key is told
  apart from those of other lanes."
  [lane txn]
  (let [key (second (first txn))]
    (vec (for [[f k v] txn :when (= k key)]
           [f (+ lane (* 10 k)) v]))))

(defn- lane
  "Transactions on one key at a time, a hundred appends each."
  [number]
  (map (fn [txn] {:f :txn, :value (of-one-key number txn)})
       (elle/append-txns {:key-count 1, :min-txn-length 1, :max-txn-length 3
                          :max-writes-per-key 100})))

(def lanes 3)

(defn generator [opts]
  (->> (gen/mix (map lane (range lanes)))
       (gen/stagger (/ (:rate opts)))))

(defn last-reads
  "The first keys once more: what was acknowledged at the beginning is there in the end."
  []
  (gen/each-thread (map (fn [key] {:f :txn, :value [[:r key nil]]}) (range lanes))))

(def promise {:consistency-models [:strict-serializable]})

(defn elle-checker
  "Elle draws each anomaly with dot, and where that is missing its verdict about an anomaly would be
  :unknown. Without a directory it draws nothing, and the verdict is the same."
  []
  (if (tools/installed? "dot")
    (append/checker promise)
    (reify checker/Checker
      (check [_ _ history _]
        (elle/check promise history)))))

(defn workload [opts]
  {:client    (->Client nil acquire! release!)
   :generator (generator opts)
   :final     (last-reads)
   :checker   (elle-checker)})
