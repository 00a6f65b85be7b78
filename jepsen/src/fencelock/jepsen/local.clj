(ns fencelock.jepsen.local
  "Nodes as processes of this machine, each in a network namespace of its own.

  A hub namespace routes between the nodes and the clients, which are in ours. A direction between
  two nodes is cut by a rule of the hub that throws its packets away: the kernel's TCP meets the
  partition, both ways or one way, and nobody is told. That needs no netfilter.
  It needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN."
  (:require [clojure.java.io :as io]
            [clojure.java.shell :as shell]
            [clojure.string :as str]
            [jepsen.control.core :as core]
            [jepsen.net.proto :as net])
  (:import (java.lang ProcessHandle)))

(def cut-priority 100)

(defn- sh!
  "Runs a command line. Throws with what it said when it fails."
  [& words]
  (let [words (map #(if (keyword? %) (name %) (str %)) words)
        done  (apply shell/sh words)]
    (when-not (zero? (:exit done))
      (throw (ex-info (str (str/join " " words) ": " (str/trim (str (:err done) (:out done))))
                      {:exit (:exit done)})))
    (:out done)))

(defn plan
  "Names and addresses for these nodes: /30 networks of one /24, chosen by our process id."
  [nodes]
  (let [pid  (.pid (ProcessHandle/current))
        name (str "flj" pid)
        net  (str "10." (+ 120 (mod (quot pid 256) 100)) "." (mod pid 256))]
    {:name      name
     :net       net
     :hub       (str name "-hub")
     :namespaces (into {} (for [n nodes] [n (str name "-" n)]))
     :addresses (into {} (map-indexed (fn [i n] [n (str net "." (+ 6 (* 4 i)))]) nodes))
     :gateways  (into {} (map-indexed (fn [i n] [n (str net "." (+ 5 (* 4 i)))]) nodes))}))

(defn down!
  "Removes the namespaces, and with them what they contain. Processes in them end first."
  [{:keys [name hub namespaces]}]
  (doseq [netns (cons hub (vals namespaces))]
    (doseq [pid (str/split-lines (:out (shell/sh "ip" "netns" "pids" netns)))
            :when (seq pid)]
      (shell/sh "kill" "-9" pid))
    (shell/sh "ip" "netns" "delete" netns))
  (shell/sh "ip" "link" "delete" name))

(defn remove-leftovers!
  "Removes what a run left behind that was killed: namespaces whose process is gone."
  []
  (doseq [line (str/split-lines (:out (shell/sh "ip" "netns" "list")))
          :let [[_ netns pid] (re-find #"^(flj(\d+)-\S+)" line)]
          :when (and pid (not (.exists (io/file "/proc" pid))))]
    (down! {:name (str "flj" pid), :hub netns, :namespaces {}})))

(defn up!
  "Makes the namespaces of a plan, and sees to their removal when this process ends."
  [{:keys [name net hub namespaces addresses gateways] :as plan}]
  (remove-leftovers!)
  (.addShutdownHook (Runtime/getRuntime) (Thread. ^Runnable (fn [] (down! plan))))
  (sh! "ip" "netns" "add" hub)
  (sh! "ip" "link" "add" name "type" "veth" "peer" "name" "clients" "netns" hub)
  (sh! "ip" "addr" "add" (str net ".1/30") "dev" name)
  (sh! "ip" "-n" hub "addr" "add" (str net ".2/30") "dev" "clients")
  (sh! "ip" "link" "set" name "up")
  (sh! "ip" "-n" hub "link" "set" "clients" "up")
  (sh! "ip" "netns" "exec" hub "sh" "-c" "echo 1 > /proc/sys/net/ipv4/ip_forward")
  (sh! "ip" "route" "add" (str net ".0/24") "via" (str net ".2") "dev" name)
  (doseq [[node netns] namespaces]
    (sh! "ip" "netns" "add" netns)
    (sh! "ip" "-n" hub "link" "add" node "type" "veth" "peer" "name" "eth0" "netns" netns)
    (sh! "ip" "-n" hub "addr" "add" (str (gateways node) "/30") "dev" node)
    (sh! "ip" "-n" hub "link" "set" node "up")
    (sh! "ip" "-n" netns "addr" "add" (str (addresses node) "/30") "dev" "eth0")
    (sh! "ip" "-n" netns "link" "set" "lo" "up")
    (sh! "ip" "-n" netns "link" "set" "eth0" "up")
    (sh! "ip" "-n" netns "route" "add" "default" "via" (gateways node)))
  plan)

(def sudo-words #"(?s)^sudo -k -S -u root bash -c (.*)$")

(defn without-sudo
  "We are root already, and sudo need not be installed."
  [command]
  (if-let [[_ inner] (re-find sudo-words command)]
    (str "bash -c " inner)
    command))

(defrecord LocalRemote [plan netns]
  core/Remote
  (connect [this spec]
    (assoc this :netns (get-in plan [:namespaces (:host spec)])))
  (disconnect! [this]
    this)
  (execute! [_ _ action]
    (merge action (shell/sh "ip" "netns" "exec" netns "sh" "-c" (without-sudo (:cmd action))
                            :in (or (:in action) ""))))
  (upload! [_ _ local-paths remote-path _]
    (doseq [path (flatten [local-paths])]
      (sh! "cp" "-r" path remote-path)))
  (download! [_ _ remote-paths local-path _]
    (doseq [path (flatten [remote-paths])]
      (sh! "cp" "-r" path local-path))))

(defn remote [plan]
  (->LocalRemote plan nil))

(defn- cut! [{:keys [hub addresses]} from to]
  (sh! "ip" "-n" hub "rule" "add" "priority" cut-priority
       "from" (addresses from) "to" (addresses to) "blackhole"))

(defn- remove-cuts!
  "Takes away every cut. A rule of this priority is deleted at a time, until there is none."
  [{:keys [hub]}]
  (when (zero? (:exit (shell/sh "ip" "-n" hub "rule" "delete" "priority" (str cut-priority))))
    (recur {:hub hub})))

(defrecord HubNet [plan]
  net/Net
  (drop! [_ _ from to] (cut! plan from to))
  (heal! [_ _] (remove-cuts! plan))
  (slow! [_ _] (throw (UnsupportedOperationException. "slow links need a lab")))
  (slow! [_ _ _] (throw (UnsupportedOperationException. "slow links need a lab")))
  (flaky! [_ _] (throw (UnsupportedOperationException. "lossy links need a lab")))
  (fast! [_ _])
  (shape! [_ _ _ _] (throw (UnsupportedOperationException. "shaped links need a lab")))
  net/PartitionAll
  (drop-all! [_ _ grudge]
    (doseq [[to froms] grudge, from froms]
      (cut! plan from to))))
