(ns fencelock.jepsen.main
  "The command line: which workloads run under which faults, and what came of it."
  (:require [clojure.java.io :as io]
            [clojure.java.shell :as shell]
            [clojure.string :as str]
            [clojure.tools.logging :refer [info warn]]
            [fencelock.jepsen.db :as fdb]
            [fencelock.jepsen.faults :as faults]
            [fencelock.jepsen.index :as index]
            [fencelock.jepsen.local :as local]
            [fencelock.jepsen.tools :as tools]
            [fencelock.jepsen.workload.append :as append]
            [fencelock.jepsen.workload.bank :as bank]
            [fencelock.jepsen.workload.lock :as lock]
            [fencelock.jepsen.workload.queue :as queue]
            [fencelock.jepsen.workload.redlock :as redlock]
            [fencelock.jepsen.workload.register :as register]
            [fencelock.jepsen.workload.sessions :as sessions]
            [fencelock.jepsen.workload.tokens :as tokens]
            [fencelock.jepsen.workload.watch :as watch]
            [jepsen.checker :as checker]
            [jepsen.checker.timeline :as timeline]
            [jepsen.cli :as cli]
            [jepsen.core :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.nemesis :as nemesis]
            [jepsen.net :as net]
            [jepsen.os :as os]
            [jepsen.os.debian :as debian]
            [jepsen.store :as store]
            [jepsen.tests :as tests])
  (:gen-class))

(def workloads
  "Each with the control that must be found: options that break the system on purpose."
  (array-map
    :tokens    {:make tokens/workload, :controls [{:no-sync true}]}
    :append    {:make append/workload, :controls [{:no-fencing true} {:no-claim true}]}
    :register  {:make register/workload, :controls [{:no-fencing true}]}
    :lock      {:make #(lock/workload :lock %), :controls [{:no-sync true}]}
    :semaphore {:make #(lock/workload :semaphore %), :controls [{:no-sync true}]}
    :modes     {:make #(lock/workload :modes %), :controls [{:no-sync true}]}
    :bank      {:make bank/workload, :controls [{:no-fencing true} {:no-claim true}]}
    :queue     {:make queue/workload, :controls [{:no-sync true}]}
    :sessions  {:make sessions/workload, :controls [{:no-sync true}]}
    :watch     {:make watch/workload, :controls [{:no-sync true}]}
    :redlock   {:make redlock/workload, :controls [{:no-tokens true}]}))

(def default-faults [:kill :pause])

(defn healed
  "Promise 5: after the faults everybody serves again in bounded time."
  []
  (reify checker/Checker
    (check [_ _ history _]
      (let [last-heal (last (filter #(and (= :heal (:f %)) (:value %)) history))]
        {:valid? (= :healed (:value last-heal))
         :value  (:value last-heal)}))))

(defn crashes
  "What no server may print."
  [service]
  (checker/log-file-pattern #"[Aa]ssertion|AddressSanitizer|runtime error:|SIGSEGV|SIGABRT"
                            (str service ".log")))

(defn- check-all [workload package]
  (checker/compose
    (cond-> {:workload (:checker workload)
             :healed   (healed)
             :stats    (reify checker/Checker
                         (check [_ test history more]
                           ; How many of each came through is told; few of them are no fault.
                           (assoc (checker/check (checker/stats) test history more) :valid? true)))
             :timeline (timeline/html)
             :nodes    (crashes "fencelockd")
             :storage  (crashes "fencelock-store")}
      (tools/installed? "gnuplot") (assoc :perf (checker/perf {:nemeses (:perf package)})))))

(defn- phases [workload package opts]
  (gen/phases
    (->> (:generator workload)
         (gen/nemesis (:generator package))
         (gen/time-limit (:time-limit opts)))
    (gen/log "The faults end")
    (gen/nemesis (:final-generator package))
    (gen/log "Everybody is back; the last questions")
    (gen/time-limit 60 (gen/clients (:final workload)))))

(defn- switches [opts]
  (for [k [:no-fencing :no-claim :no-sync :no-tokens] :when (k opts)] k))

(defn test-name [opts]
  (str/join "-" (concat ["fencelock" (name (:workload opts))]
                        (map #(str "broken-" (name %)) (switches opts))
                        ["under" (faults/describe opts)])))

(defn make-test
  "The map that the framework runs."
  [opts]
  (let [broken?  (seq (switches opts))
        opts     (cond-> opts
                   ; What is broken on purpose shows best when nothing else is wrong.
                   (and broken? (= default-faults (:faults opts))) (assoc :faults [])
                   (:no-sync opts) (assoc :faults [:kill], :interval 2)
                   (= :redlock (:workload opts)) (assoc :redis true))
        opts     (assoc opts :shim (boolean (and (:local opts)
                                                 (some faults/needs-shim (:faults opts)))))
        workload ((get-in workloads [(:workload opts) :make]) opts)
        package  (faults/package opts)]
    (merge tests/noop-test
           (dissoc opts :faults)
           {:name      (test-name opts)
            :fault-names (vec (:faults opts))
            :os        (if (:local opts) os/noop debian/os)
            :db        (fdb/servers (:nodes opts))
            :net       (if (:local opts) (local/->HubNet (:plan opts)) net/iptables)
            :remote    (if (:local opts) (local/remote (:plan opts)) (:remote tests/noop-test))
            :client    (:client workload)
            :nemesis   (nemesis/validate (:nemesis package))
            :checker   (check-all workload package)
            :generator (phases workload package opts)})))

;; --- options ------------------------------------------------------------------------------------

(defn- one-of [known text]
  (let [k (keyword text)]
    (when-not (known k)
      (throw (IllegalArgumentException.
               (str text " is none of " (str/join ", " (sort (map name (keys known))))))))
    k))

(defn- parse-faults [text]
  (case text
    "none" []
    "all"  :all
    (mapv #(one-of faults/faults %) (str/split text #","))))

(defn- parse-tests [text]
  (case text
    "all" (vec (keys workloads))
    (mapv #(one-of workloads %) (str/split text #","))))

(def options
  [[nil "--test NAMES" (str "Workloads, separated by commas, or all; all runs the broken controls"
                            " as well. " (str/join ", " (map name (keys workloads))))
    :default [:tokens] :parse-fn parse-tests]
   [nil "--faults NAMES" (str "Faults, separated by commas; none; all that these nodes can have. "
                              (str/join ", " (map name (keys faults/faults))))
    :default default-faults :parse-fn parse-faults]
   [nil "--local" "Nodes as processes in network namespaces of this machine, instead of SSH"]
   [nil "--servers N" "With --local: how many nodes of the lock service: 1, 3 or 5"
    :default 3 :parse-fn parse-long :validate [#{1 3 5} "must be 1, 3 or 5"]]
   [nil "--controls" "Run the broken controls of these workloads, and nothing else"]
   [nil "--no-fencing" "Break it on purpose: the storage ignores tokens"]
   [nil "--no-claim" "Break it on purpose: clients read without their token, so nobody claims"]
   [nil "--no-sync" (str "Break it on purpose: nodes acknowledge what is not yet on disk, and all"
                         " are killed")]
   [nil "--no-tokens" "Break it on purpose: Redlock without tokens (workload redlock)"]
   [nil "--rate HZ" "Operations a second, of all clients together"
    :default 60 :parse-fn parse-long :validate [pos? "must be positive"]]
   [nil "--interval SECONDS" "Mean time between faults"
    :default 5 :parse-fn parse-long :validate [pos? "must be positive"]]
   [nil "--build DIR" "Where fencelock was built; a relative path begins at jepsen/"
    :default (or (System/getenv "FENCELOCK_BUILD") "../build")]
   [nil "--tarball URL" "In a lab: where the programs come from, packed"]
   [nil "--deb FILES" "In a lab: the packages to install, separated by commas"
    :parse-fn #(vec (str/split % #","))]
   [nil "--snapshot-bytes N" "Nodes take a snapshot after so many bytes of log"
    :parse-fn parse-long]])

(defn- check-options [{:keys [options] :as parsed}]
  (let [problems (concat
                   (keep #(faults/why-not options %) (:faults options))
                   (when-not (or (:deb options) (:tarball options)
                                 (.canExecute (io/file (:build options) "src/cli/fencelockd")))
                     [(str "fencelockd is not built in " (:build options) "; first: "
                           "deploy/setup --tests && meson setup build && ninja -C build")])
                   (for [file (:deb options) :when (not (.canRead (io/file file)))]
                     (str "there is no package " file))
                   (when (and (some #{:redlock} (:test options))
                              (not (.canExecute (io/file (:build options) "src/cli/fencelock"))))
                     [(str "the workload redlock runs the tool here: fencelock is not built in "
                           (:build options))])
                   (when (and (not (:local options)) (< (count (:nodes options)) 2))
                     ["a lab needs two nodes at least: the last one is the storage"]))]
    (update parsed :errors concat problems)))

(defn- with-nodes [{:keys [options] :as parsed}]
  (if (:local options)
    (assoc-in parsed [:options :nodes]
              (conj (mapv #(str "n" (inc %)) (range (:servers options))) "store"))
    parsed))

(defn- with-faults [{:keys [options] :as parsed}]
  (update-in parsed [:options :faults]
             #(if (= :all %)
                (vec (remove (partial faults/why-not options) (keys faults/faults)))
                %)))

(def specs
  (cli/merge-opt-specs
    (cli/merge-opt-specs cli/test-opt-spec options)
    [[nil "--concurrency NUMBER" "Clients" :default "6"]]))

(defn- options-of [parsed]
  (-> parsed cli/test-opt-fn with-nodes with-faults check-options
      (update-in [:options :build] #(.getCanonicalPath (io/file %)))))

(defn combinations
  "The runs that these options ask for."
  [{:keys [test controls] :as opts}]
  (let [all?  (= (set test) (set (keys workloads)))
        one   (fn [w more] (merge (dissoc opts :test) {:workload w} more))
        named (set (switches opts))]
    (cond
      (seq named) (for [w test] (one w {}))
      controls    (for [w test, c (:controls (workloads w))] (one w c))
      :else       (concat (for [w test] (one w {}))
                          (when all?
                            (for [w test, c (:controls (workloads w))] (one w c)))))))

;; --- running ------------------------------------------------------------------------------------

(defn- verdict
  "What was broken on purpose has to be found by the workload's own checker: that servers did not
  come back, say, is not what a control is for."
  [results expect-invalid?]
  (if expect-invalid?
    (:valid? (:workload results))
    (:valid? results)))

(defn- run-one [opts]
  (let [test (make-test opts)
        expect-invalid? (boolean (seq (switches opts)))
        [valid? path] (try
                        (let [done (jepsen/run! test)]
                          [(verdict (:results done) expect-invalid?) (.getPath (store/path done))])
                        (catch Throwable e ; memory that ended too: the next run has it again
                          (warn e "the run crashed")
                          [:crashed nil]))]
    {:name (:name test), :valid? valid?, :path path, :expect-invalid? expect-invalid?
     :good? (if expect-invalid? (false? valid?) (true? valid?))}))

(defn- tell [runs]
  (println)
  (doseq [{:keys [name valid? good? expect-invalid? path]} runs]
    (println (format "%-4s %-10s %s" (if good? "ok" "BAD") (str ":valid? " valid?)
                     (str name (when expect-invalid? "   (broken on purpose: false is right)"))))
    (println "    " path))
  (println (count (filter :good? runs)) "as they should be," (count (remove :good? runs)) "not"))

(defn- run-all [{:keys [options]}]
  (let [opts (if (:local options)
               (let [state (io/file (:build options) "jepsen-data"
                                    (str (.pid (java.lang.ProcessHandle/current))))]
                 (.mkdirs state)
                 (assoc options :state (.getPath state)
                        :plan (local/up! (local/plan (:nodes options)))))
               options)
        runs (mapv run-one (combinations opts))]
    (when (:local opts)
      (shell/sh "rm" "-rf" (:state opts)))
    (info "index of runs:" (index/write!))
    (tell runs)
    (System/exit (if (every? :good? runs) 0 1))))

(defn -main [& args]
  (cli/run! (merge (cli/serve-cmd)
                   {"test"  {:opt-spec specs, :opt-fn options-of, :usage "jepsen/run [OPTIONS]"
                             :run run-all}
                    "index" {:opt-spec [cli/help-opt]
                             :run (fn [_] (println (index/write!)))}})
            (if (and (first args) (not (str/starts-with? (first args) "-")))
              args
              (cons "test" args))))
