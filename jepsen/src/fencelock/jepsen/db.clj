(ns fencelock.jepsen.db
  "The servers of a test: fencelockd on every node but the last, fencelock-store on the last, and
  for the workload redlock a Redis on every node but the last.

  In a lab they come from a tarball, a .deb, or the programs of this machine's build, and live
  under /opt/fencelock. With --local they are the build's own programs, and live under :state."
  (:require [clojure.java.io :as io]
            [clojure.string :as str]
            [clojure.tools.logging :refer [info]]
            [fencelock.jepsen.shim :as shim]
            [fencelock.wire :as wire]
            [jepsen.control :as c]
            [jepsen.control.util :as cu]
            [jepsen.db :as db]
            [jepsen.os.debian :as debian])
  (:import (java.net InetAddress)))

(def client-port 7401)
(def peer-port 7400)
(def store-port 7411)
(def redis-port 6379)
(def start-seconds "How long servers may take to serve." 90)

(defn store-node [test] (last (:nodes test)))
(defn lock-nodes [test] (vec (butlast (:nodes test))))
(defn store? [test node] (= node (store-node test)))
(defn id-of [test node] (inc (.indexOf ^java.util.List (lock-nodes test) node)))

(defn members
  "The lock nodes that are members as the fault member has it; all of them without that."
  [test]
  (filterv (:wanted @(:members (:db test))) (lock-nodes test)))

(defn member? [test node] (contains? (:wanted @(:members (:db test))) node))

(defn want!
  "From now on this node is to be a member: one that joins with an empty directory."
  [test node]
  (swap! (:members (:db test)) #(-> % (update :wanted conj node) (update :joins conj node))))

(defn want-no-more! [test node]
  (swap! (:members (:db test)) update :wanted disj node))

(defn joins? [test node] (contains? (:joins @(:members (:db test))) node))

(defn address
  "A number, since that is what servers listen on."
  [test node]
  (or (get-in test [:plan :addresses node])
      (.getHostAddress (InetAddress/getByName node))))

(defn home [test node]
  (if (:local test) (str (:state test) "/" node) "/opt/fencelock"))

(defn data [test node] (str (home test node) "/data"))
(defn log-file [test node service] (str (home test node) "/" service ".log"))
(defn shim-file [test node] (str (home test node) "/shim"))

(defn connect
  "A connection to the lock service's node, or to the storage when it is that node."
  [test node timeout-ms]
  (wire/connect (address test node) (if (store? test node) store-port client-port) timeout-ms))

(defn ask
  "One command on a connection of its own."
  [test node timeout-ms & args]
  (let [conn (connect test node timeout-ms)]
    (try
      (apply wire/call conn args)
      (finally (wire/close! conn)))))

(defn await-true
  "Waits until f is true; what it throws counts as not yet."
  [what seconds f]
  (let [deadline (+ (System/nanoTime) (long (* 1e9 seconds)))]
    (loop []
      (or (try (f) (catch Exception _ nil))
          (if (< deadline (System/nanoTime))
            (throw (ex-info (str what " did not come about in " seconds " s") {:type ::never}))
            (do (Thread/sleep 50) (recur)))))))

(defn await-serving
  ([test node]
   (await-serving test node (if (:no-sync test) 15 start-seconds)))
  ([test node seconds]
   (await-true (str "service by " node) seconds
               #(if (store? test node)
                  (ask test node 3000 "MARK" "nothing")
                  (ask test node 5000 "CHECK" "nothing" 1)))))

(defn leader
  "The lock node that says that it leads, or nil. It may be one that is to be removed."
  [test]
  (first (filter (fn [node]
                   (try (= (str (id-of test node))
                           (:leader_id (wire/info-fields (ask test node 1000 "INFO"))))
                        (catch Exception _ false)))
                 (lock-nodes test))))

(defn cluster
  "What the leader says of each node that it knows: its state by id. nil when nobody leads."
  [test]
  (when-let [node (leader test)]
    (into {} (for [row (map wire/fields (ask test node 2000 "CLUSTER" "MEMBERS"))]
               [(parse-long (str (:id row))) (:state row)]))))

(defn all-vote?
  "Whether the leader has every member as a voter, and nobody else. One that was let in becomes one
  when it has caught up; until then no other may lose its disk."
  [test]
  (= (cluster test) (into {} (for [node (members test)] [(id-of test node) "voter"]))))

;; --- programs -----------------------------------------------------------------------------------

(def programs ["fencelockd" "fencelock-store" "fencelock"])

(defn- store-program
  "The one that ignores tokens is built for tests, and in no package."
  [test]
  (if (or (:no-fencing test) (:no-tokens test)) "fencelock-store-unfenced" "fencelock-store"))

(defn bin [test node program]
  (str (if (:local test) (str (:build test) "/src/cli") (str (home test node) "/bin"))
       "/" program))

(def packages
  "What the programs are linked with. Those that come as packages name it themselves."
  ["libuv1" "libsqlite3-0" "libhiredis0.14" "liburing2" "libssl3" "libmicrohttpd12"])

(defn- stop-units!
  "What a package started has our ports, and must not come back."
  [& units]
  (doseq [unit units]
    (c/exec :sh :-c (str "systemctl disable --now " unit " || service " unit " stop || true"))))

(defn- install-debs! [files]
  (let [there (for [file files] (str "/root/" (.getName (io/file file))))]
    (doseq [[file at] (map vector files there)]
      (c/upload file at))
    (c/exec :env "DEBIAN_FRONTEND=noninteractive" :apt-get :install :-y :--reinstall
            :--allow-downgrades :--no-install-recommends there)
    (stop-units! "fencelockd" "fencelock-store")))

(defn- install!
  "Brings the programs onto a node of a lab."
  [test node]
  (let [dir (str (home test node) "/bin")]
    (debian/install (cond-> (if (:deb test) [] packages)
                      (:redis test) (conj "redis-server")))
    (when (:redis test)
      (stop-units! "redis-server"))
    (c/exec :rm :-rf dir)
    (c/exec :mkdir :-p dir)
    (cond
      (:deb test)
      (do (install-debs! (:deb test))
          (doseq [p programs]
            (c/exec :sh :-c (str "if [ -x /usr/bin/" p " ]; then"
                                 " ln -sf /usr/bin/" p " " dir "; fi"))))

      (:tarball test)
      (do (cu/install-archive! (:tarball test) (str (home test node) "/unpacked"))
          (doseq [p programs]
            (c/exec :sh :-c (str "cp $(find " (home test node) "/unpacked -type f -perm -u+x -name "
                                 p " | head -n 1) " dir))))

      :else
      (doseq [p (distinct (conj programs (store-program test)))]
        (c/upload (str (:build test) "/src/cli/" p) (str dir "/" p))
        (c/exec :chmod "755" (str dir "/" p))))))

(defn- preloads
  "Libraries that disturb a server on purpose: the one for --no-sync, and the shim."
  [test service]
  (let [from (str (:build test) "/tests/torture/")]
    (cond-> []
      (and (:no-sync test) (= service "fencelockd")) (conj (str from "fencelock_unsafe_ack.so"))
      (:shim test) (conj (str from "fencelock_shim_plain.so")))))

(defn- environment [test node service]
  (let [libraries (preloads test service)
        there     (if (:local test)
                    libraries
                    (map #(str (home test node) "/" (.getName (io/file %))) libraries))
        shim      (cond-> (shim-file test node) (= service "redis") (str "-redis"))]
    (if (empty? libraries)
      []
      ["env" (str "LD_PRELOAD=" (str/join ":" there))
       (str "FENCELOCK_SHIM=" shim) (str "FENCELOCK_SHIM_DIR=" (data test node))
       (str "FENCELOCK_SHIM_UNDO=" shim ".undo")])))

(def cluster-secret
  "By which the nodes know each other: beyond loopback they need one. It keeps nobody out of a lab."
  "the-secret-of-a-cluster-that-is-only-a-test")

(defn peer
  "The address that a node has for the others."
  [test node]
  (str (address test node) ":" peer-port))

(defn- begin-words
  "How a node with an empty directory begins: as one of a new cluster, or in the one that is there."
  [test node]
  (let [those (fn [nodes] (str/join "," (for [n nodes] (str (id-of test n) "=" (peer test n)))))]
    (if (joins? test node)
      ["--join" (those (remove #{node} (members test)))]
      ["--cluster" (those (lock-nodes test))])))

(defn- lockd-words [test node]
  (let [ip (address test node)]
    (concat [(bin test node "fencelockd") "--id" (id-of test node) "--data" (data test node)
             "--listen" (str ip ":" client-port) "--peer" (peer test node)
             "--protected-mode" "no"
             "--cluster-secret-file" (str (home test node) "/cluster-secret")]
            (begin-words test node)
            (when (:snapshot-bytes test) ["--snapshot-bytes" (:snapshot-bytes test)]))))

(defn- store-words [test node]
  [(bin test node (store-program test)) "--listen" (str (address test node) ":" store-port)
   "--data" (data test node) "--protected-mode" "no"])

(defn- redis-words [test node]
  ["redis-server" "--port" redis-port "--bind" (address test node) "--save" "''"
   "--appendonly" "no" "--protected-mode" "no" "--dir" (home test node)])

(defn services
  "What runs on a node: names, and the words that start each."
  [test node]
  (cond-> (if (store? test node)
            {"fencelock-store" (store-words test node)}
            {"fencelockd" (lockd-words test node)})
    (and (:redis test) (not (store? test node)))
    (assoc "redis" (redis-words test node))))

;; --- processes ----------------------------------------------------------------------------------

(defn- pid-file [test node service] (str (home test node) "/" service ".pid"))

(defn start-service! [test node service]
  (let [words (concat (environment test node service) (get (services test node) service))
        pid   (pid-file test node service)]
    (c/su (c/exec :sh :-c
                  (str "cd " (home test node) "; mkdir -p " (data test node)
                       "; [ -s cluster-secret ] || echo " cluster-secret " >cluster-secret"
                       "; if [ -s " pid " ] && readlink /proc/$(cat " pid ")/exe >/dev/null;"
                       " then exit 0; fi; setsid " (str/join " " words)
                       " >>" (log-file test node service) " 2>&1 </dev/null & echo $! >" pid)))
    :started))

(defn signal-service!
  "Sends a signal. With :KILL and :TERM it waits until the process is gone. One that was paused
  hears of a :TERM only when it goes on."
  [test node service signal]
  (let [pid (pid-file test node service)]
    (c/su (c/exec :sh :-c
                  (str "p=$(cat " pid " 2>/dev/null) || exit 0; kill -" (name signal)
                       " $p 2>/dev/null; "
                       (if (= :TERM signal) "kill -CONT $p 2>/dev/null; " "")
                       (if (#{:KILL :TERM} signal)
                         (str "n=0; while readlink /proc/$p/exe >/dev/null 2>&1 && [ $n -lt 1000 ];"
                              " do sleep 0.02; n=$((n+1)); done;"
                              " readlink /proc/$p/exe >/dev/null 2>&1 || rm -f " pid "; ")
                         "")
                       "exit 0")))
    signal))

(defn running? [test node service]
  (= "yes" (c/su (c/exec :sh :-c
                         (str "p=$(cat " (pid-file test node service) " 2>/dev/null);"
                              " if [ -n \"$p\" ] && readlink /proc/$p/exe >/dev/null 2>&1;"
                              " then echo yes; else echo no; fi")))))

(defn wipe!
  "Takes the data directory away, as a disk that was exchanged. What was not synced on the old one
  must not come back on the new one, whose files may have the numbers of the old files."
  [test node]
  (c/su (c/exec :rm :-rf (data test node)))
  (when (:shim test)
    (c/exec :sh :-c (str "rm -f " (shim-file test node) ".undo*"))))

(defn- prepare-shim! [test node]
  (doseq [suffix ["" "-redis"]
          :let [file (str (shim-file test node) suffix)]]
    (c/exec :sh :-c (str "head -c " (shim/bytes-of-file) " /dev/zero >" file "; rm -f " file ".undo*"))))

(defn- upload-preloads! [test node]
  (when-not (:local test)
    (doseq [library (set (mapcat #(preloads test %) (keys (services test node))))]
      (c/upload library (home test node)))))

(defn- start-all!
  "Starts what runs on a node. A lock node that is no member stays where it is."
  [test node]
  (doseq [service (keys (services test node))
          :when (or (not= service "fencelockd") (member? test node))]
    (start-service! test node service)))

(defrecord Servers [members]
  db/DB
  (setup! [_ test node]
    (c/su
      (c/exec :mkdir :-p (home test node))
      (when-not (:local test)
        (install! test node))
      (upload-preloads! test node)
      (when (:shim test)
        (prepare-shim! test node)))
    (start-all! test node)
    (await-serving test node)
    (info node "serves"))
  (teardown! [_ test node]
    (doseq [service (keys (services test node))]
      (signal-service! test node service :CONT)
      (signal-service! test node service :KILL))
    (c/su (c/exec :sh :-c (str "rm -rf " (data test node) " " (home test node) "/*.log "
                               (home test node) "/shim*"))))

  db/Kill
  (kill! [_ test node]
    (doseq [service (keys (services test node))]
      (signal-service! test node service :KILL))
    :killed)
  (start! [_ test node]
    (start-all! test node)
    :started)

  db/Pause
  (pause! [_ test node]
    (doseq [service (keys (services test node))]
      (signal-service! test node service :STOP))
    :paused)
  (resume! [_ test node]
    (doseq [service (keys (services test node))]
      (signal-service! test node service :CONT))
    :resumed)

  db/Primary
  (primaries [_ test]
    (filterv some? [(or (leader test) (first (members test)))]))
  (setup-primary! [_ _ _])

  db/LogFiles
  (log-files [_ test node]
    (into {} (for [service (keys (services test node))]
               [(log-file test node service) (str service ".log")]))))

(defn servers
  "The servers of a test with these nodes, all of whose lock nodes are members."
  [nodes]
  (->Servers (atom {:wanted (set (butlast nodes)), :joins #{}})))
