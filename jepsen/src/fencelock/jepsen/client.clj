(ns fencelock.jepsen.client
  "What the clients of all workloads share: connections that are opened when they are needed and
  given up when they break, and what an exception means for an operation.

  A node that refuses the connection is asked again only after a while: otherwise its clients
  would fail thousands of operations a second and use up the keys that the others work on."
  (:require [fencelock.jepsen.db :as fdb]
            [fencelock.wire :as wire]))

(def timeout-ms
  "How long an answer may take. A node holds a request for 3 s while nobody leads."
  8000)
(def refused-pause-ms 400)

(defn links
  "Connections of one client: its node of the lock service, and the storage."
  [test node]
  (let [locks (fdb/lock-nodes test)
        node  (if (fdb/store? test node) (rand-nth locks) node)]
    {:test test, :node node, :store (fdb/store-node test), :open (atom {})}))

(defn close! [links]
  (doseq [conn (vals @(:open links))]
    (wire/close! conn))
  (reset! (:open links) {}))

(defn connect
  "A connection of its own."
  [links node]
  (try
    (fdb/connect (:test links) node timeout-ms)
    (catch clojure.lang.ExceptionInfo e
      (Thread/sleep (long refused-pause-ms))
      (throw e))))

(defn- conn [links node]
  (or (get @(:open links) node)
      (let [c (connect links node)]
        (swap! (:open links) assoc node c)
        c)))

(defn- ask-node [links node args]
  (let [c (conn links node)]
    (try
      (apply wire/call c args)
      (catch clojure.lang.ExceptionInfo e
        (when (wire/broken? e)
          (wire/close! c)
          (swap! (:open links) dissoc node))
        (throw e)))))

(defn at
  "The lock node that a client asks: its own, or another one while that is no member."
  [{:keys [test node]}]
  (let [members (fdb/members test)]
    (if (some #{node} members)
      node
      (nth members (mod (fdb/id-of test node) (count members))))))

(defn lock!
  "A command for the lock service."
  [links & args]
  (ask-node links (at links) args))

(defn store!
  "A command for the storage."
  [links & args]
  (ask-node links (:store links) args))

(defn outcome
  "What an exception of a call makes of an operation. effects? says whether the operation may have
  changed something when its outcome is unknown."
  [op e effects?]
  (let [{:keys [outcome word]} (ex-data e)]
    (assoc op :type (if (and effects? (not= :refused outcome)) :info :fail)
              :error (or word (.getMessage ^Throwable e)))))

(defmacro answering
  "The body's value, or the operation with what the exception means for it."
  [op effects? & body]
  `(try
     ~@body
     (catch clojure.lang.ExceptionInfo e#
       (outcome ~op e# ~effects?))))

(defn quietly
  "A call whose outcome does not matter to the operation: giving a lock back."
  [f]
  (try (f) (catch clojure.lang.ExceptionInfo _ nil)))

(defn new-owner [] (str (java.util.UUID/randomUUID)))

(defn pause-before-write!
  "Now and then a client takes long between reading and writing: longer than its lease, so that the
  next holder has read meanwhile, or so long that a late write of the one before comes in between.
  Often, when something is broken on purpose that only this shows."
  [test lease-ms]
  (when (zero? (rand-int (cond (:no-claim test) 2
                               (or (:no-fencing test) (:no-tokens test)) 4
                               :else 25)))
    (Thread/sleep (long (+ 300 (rand-int (+ lease-ms 500)))))))

(defn key-interval
  "Seconds between operations on a key that has so many of the threads, so that all keys together
  see the rate that was asked for."
  [opts threads]
  (/ (quot (:concurrency opts) threads) (:rate opts)))
