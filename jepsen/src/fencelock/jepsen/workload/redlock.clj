(ns fencelock.jepsen.workload.redlock
  "The lists of the workload append, under locks by Redlock: fencelock redlock acquires them on the
  Redis servers of the lock nodes and draws the token from these. Redis servers restart without
  their keys, and their clocks jump: two may hold a lock at once, and no append is lost.

  --no-tokens is Redlock as it is without us: no token, and a storage that asks for none."
  (:require [clojure.java.shell :as shell]
            [clojure.string :as str]
            [fencelock.jepsen.db :as fdb]
            [fencelock.jepsen.workload.append :as append]))

(def wait-ms 2000)

(defn- addresses [test port]
  (str/join "," (for [node (fdb/lock-nodes test)] (str (fdb/address test node) ":" port))))

(defn- run-cli [{:keys [test]} words]
  (apply shell/sh (str (:build test) "/src/cli/fencelock") "redlock"
         (concat (map str words)
                 ["--redis" (addresses test fdb/redis-port)]
                 (when-not (:no-tokens test)
                   ["--nodes" (addresses test fdb/client-port)]))))

(defn- acquire!
  "What the tool prints: owner, validity, token. nil when others have the lock."
  [{:keys [test] :as links} lock]
  (let [{:keys [exit out err]}
        (run-cli links ["acquire" lock "--ttl" (str append/ttl-ms "ms") "--wait" (str wait-ms "ms")
                        "--max-ttl" (str append/ttl-ms "ms") "--restarts-are-safe"])]
    (case (long exit)
      0 (let [[owner _ token] (str/split (str/trim out) #"\s+")]
          {:owner owner, :token (if (:no-tokens test) 1 (parse-long token))})
      1 nil
      (throw (ex-info (str/trim err) {:outcome :refused, :word :redlock})))))

(defn- release! [links lock {:keys [owner]}]
  (run-cli links ["release" lock owner]))

(defn workload [opts]
  {:client    (append/->Client nil acquire! release!)
   :generator (append/generator (update opts :rate min 12))
   :final     (append/last-reads)
   :checker   (append/elle-checker)})
