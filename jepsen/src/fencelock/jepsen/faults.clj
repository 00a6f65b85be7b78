(ns fencelock.jepsen.faults
  "Faults, each a package of a nemesis and its generators, as jepsen.nemesis.combined composes them.

  The nemesis does one thing at a time. What takes a disk away (member, flip) first brings everybody
  back, so that never more than a minority is without its data. Whoever is no member is left alone."
  (:require [clojure.string :as str]
            [fencelock.jepsen.db :as fdb]
            [fencelock.jepsen.shim :as shim]
            [jepsen.control :as c]
            [jepsen.db :as db]
            [jepsen.generator :as gen]
            [jepsen.nemesis :as n]
            [jepsen.nemesis.combined :as nc]
            [jepsen.nemesis.time :as nt]
            [jepsen.net :as net]
            [jepsen.util :as util]))

(defn nemesis
  "A nemesis from functions of a test and an op by :f, each of which returns a value."
  [fs]
  (reify
    n/Reflection
    (fs [_] (set (keys fs)))
    n/Nemesis
    (setup! [this _] this)
    (invoke! [_ test op]
      (assoc op :value ((get fs (:f op)) test op)))
    (teardown! [_ _])))

(defn- flip-flop [opts begin end]
  (gen/stagger (:interval opts) (gen/flip-flop begin (gen/repeat end))))

(defn- one [test] [(rand-nth (fdb/members test))])

(defn- some-nodes
  "Whom a fault meets: one, a minority, a majority, all, the leader, or the storage."
  [test]
  (let [locks (shuffle (fdb/members test))
        most  (util/majority (count locks))]
    (case (rand-int 6)
      0 (take 1 locks)
      1 (take (max 1 (dec most)) locks)
      2 (take most locks)
      3 locks
      4 [(or (fdb/leader test) (first locks))]
      5 [(fdb/store-node test)])))

(defn- on-nodes [test nodes f]
  (c/on-nodes test (vec nodes) f))

(defn- not-at-once
  "With --no-sync, what formed the cluster has to reach the disk before anybody is killed: nodes
  that have lost that refuse to serve, and then there is nothing to be found."
  [opts generator]
  (if (:no-sync opts)
    (gen/phases (gen/sleep 3) generator)
    generator))

(defn- kill [opts]
  {:nemesis (nemesis {:kill  (fn [test op]
                               (on-nodes test (:value op) (partial db/kill! (:db test))))
                      :start (fn [test _]
                               (on-nodes test (:nodes test) (partial db/start! (:db test))))})
   :generator (->> {:type :info, :f :start}
                   (flip-flop opts (fn [test _]
                                     {:type :info, :f :kill
                                      :value (vec (if (:no-sync test)
                                                    (fdb/lock-nodes test)
                                                    (some-nodes test)))}))
                   (not-at-once opts))
   :perf #{{:name "kill", :start #{:kill}, :stop #{:start}, :color "#E9A4A0"}}})

(defn- pause [opts]
  {:nemesis (nemesis {:pause  (fn [test op]
                                (on-nodes test (:value op) (partial db/pause! (:db test))))
                      :resume (fn [test _]
                                (on-nodes test (:nodes test) (partial db/resume! (:db test))))})
   :generator (flip-flop opts
                         (fn [test _] {:type :info, :f :pause, :value (vec (some-nodes test))})
                         {:type :info, :f :resume})
   :perf #{{:name "pause", :start #{:pause}, :stop #{:resume}, :color "#A0B1E9"}}})

(defn- grudge
  "Who drops whose packets: {to #{from}}. Only among the lock nodes; clients reach everybody."
  [test kind]
  (let [locks (shuffle (fdb/members test))
        other (fn [node] (remove #{node} locks))]
    (case kind
      :majority (n/complete-grudge (n/bisect locks))
      :bridge   (n/bridge locks)
      :leader   (let [leader (or (fdb/leader test) (first locks))]
                  (n/complete-grudge [[leader] (other leader)]))
      :deaf     {(first locks) (set (rest locks))}
      :mute     (into {} (for [to (rest locks)] [to #{(first locks)}])))))

(defn- partitions [opts]
  {:nemesis (nemesis {:start-partition (fn [test op]
                                         (let [g (grudge test (:value op))]
                                           (net/drop-all! test g)
                                           [(:value op) g]))
                      :stop-partition  (fn [test _] (net/heal! (:net test) test) :healed)})
   :generator (flip-flop opts
                         (fn [_ _] {:type :info, :f :start-partition
                                    :value (rand-nth [:majority :bridge :leader :deaf :mute])})
                         {:type :info, :f :stop-partition})
   :perf #{{:name "partition", :start #{:start-partition}, :stop #{:stop-partition}
            :color "#E9DCA0"}}})

;; --- clocks and disks of local nodes ------------------------------------------------------------

(defn- shims [test node]
  (cond-> [(fdb/shim-file test node)]
    (and (:redis test) (not (fdb/store? test node)))
    (conj (str (fdb/shim-file test node) "-redis"))))

(defn- each-shim! [test nodes f]
  (doseq [node nodes, file (shims test node)]
    (f file)))

(defn- strobe! [test node]
  (dotimes [i 200]
    (each-shim! test [node] #(shim/wall-ms! % (if (even? i) 4000 -4000)))
    (Thread/sleep 10)))

(defn- reset-clocks! [test]
  (each-shim! test (:nodes test) #(do (shim/wall-ms! % 0) (shim/rate! % 0))))

(defn- local-clock [opts]
  {:nemesis
   (nemesis {:bump-clock   (fn [test op]
                             (doseq [[node ms] (:value op)]
                               (each-shim! test [node] #(shim/wall-ms! % ms)))
                             (:value op))
             :skew-clock   (fn [test op]
                             (doseq [[node ppm] (:value op)]
                               (each-shim! test [node] #(shim/rate! % ppm)))
                             (:value op))
             :strobe-clock (fn [test op] (doseq [node (:value op)] (strobe! test node)) (:value op))
             :reset-clock  (fn [test _] (reset-clocks! test) :reset)})
   :generator
   (gen/stagger (:interval opts)
                (gen/mix [(fn [test _] {:type :info, :f :bump-clock
                                        :value {(rand-nth (:nodes test))
                                                (- (rand-int 240000) 120000)}})
                          (fn [test _] {:type :info, :f :skew-clock
                                        :value {(rand-nth (:nodes test))
                                                (- (rand-int 400000) 200000)}})
                          (fn [test _] {:type :info, :f :strobe-clock, :value (one test)})
                          (fn [_ _] {:type :info, :f :reset-clock})]))
   :perf #{{:name "clock", :start #{:bump-clock :skew-clock}, :stop #{:reset-clock}
            :fs #{:strobe-clock}, :color "#A0E9E3"}}})

(defn- lab-clock [opts]
  (nc/clock-package (assoc opts :faults #{:clock})))

(defn- clock [opts]
  (if (:local opts) (local-clock opts) (lab-clock opts)))

(defn- filler [test node] (str (fdb/home test node) "/filler"))

(defn- fill!
  "Takes what room there is; in a lab for real, so /opt/fencelock should be a disk of its own."
  [test node]
  (if (:local test)
    (each-shim! test [node] #(shim/full! % true))
    (c/su (c/exec :sh :-c (str "fallocate -l $(df --output=avail -B1 " (fdb/home test node)
                               " | tail -n 1) " (filler test node) " || true")))))

(defn- empty!
  [test node]
  (if (:local test)
    (when (:shim test) (each-shim! test [node] #(shim/full! % false)))
    (c/su (c/exec :rm :-f (filler test node)))))

(defn- disk-full [opts]
  {:nemesis (nemesis {:fill-disk  (fn [test op] (on-nodes test (:value op) fill!) (:value op))
                      :empty-disk (fn [test _]
                                    (on-nodes test (:nodes test) empty!)
                                    (on-nodes test (:nodes test) (partial db/start! (:db test))))})
   :generator (flip-flop opts
                         (fn [test _] {:type :info, :f :fill-disk
                                       :value [(rand-nth (:nodes test))]})
                         {:type :info, :f :empty-disk})
   :perf #{{:name "disk-full", :start #{:fill-disk}, :stop #{:empty-disk}, :color "#C9A0E9"}}})

;; --- what needs everybody there -----------------------------------------------------------------

(defn- try-for
  "nil when f, or what it waits for, came about; otherwise the reason."
  [f]
  (try (f) nil
       (catch Exception e (.getMessage e))))

(defn- former [test] (remove #(fdb/member? test %) (fdb/lock-nodes test)))

(defn- runs? [test node]
  (get (on-nodes test [node] (fn [test node] (fdb/running? test node "fencelockd"))) node))

(defn- ask-leader! [test & words]
  (when-let [leader (fdb/leader test)]
    (= "OK" (apply fdb/ask test leader 5000 "CLUSTER" words))))

(defn- ask-for-members!
  "Asks for what the leader has not yet been asked for. What it was told, every leader carries on."
  [test]
  (when-let [known (fdb/cluster test)]
    (doseq [node (fdb/lock-nodes test)
            :let [id (fdb/id-of test node), state (known id), wanted? (fdb/member? test node)]]
      (cond
        (and wanted? (nil? state))
        (ask-leader! test "ADD" id (fdb/peer test node))
        (and (not wanted?) state (not= "leaving" state))
        (ask-leader! test "REMOVE" id)))))

(defn- settle!
  "Waits until the members are those that are wanted, and all vote. nil, or why not."
  [test seconds]
  (try-for (fn []
             (fdb/await-true "the vote of every member" seconds
                             #(or (fdb/all-vote? test)
                                  (do (ask-for-members! test) false))))))

(defn heal!
  "Ends every fault and waits until each server serves, each member votes, and those that were
  removed have ended by themselves. Returns :healed, or why not."
  [test]
  (net/heal! (:net test) test)
  (when (:shim test)
    (reset-clocks! test))
  (let [why (on-nodes test (:nodes test)
                      (fn [test node]
                        (empty! test node)
                        (db/resume! (:db test) test node)
                        (db/start! (:db test) test node)
                        (when (or (fdb/store? test node) (fdb/member? test node))
                          (try-for #(fdb/await-serving test node)))))
        bad (into {} (filter val why))]
    (if (seq bad)
      bad
      (or (settle! test 60)
          (try-for #(doseq [node (former test)]
                      (fdb/await-true (str "the end of " node ", which is no member") 60
                                      (fn [] (not (runs? test node))))))
          :healed))))

(def change-seconds
  "How long a change of the members is waited for. Other faults may hold it up; then it goes on
  while the test does."
  5)

(defn- add! [test node]
  (on-nodes test [node] (partial db/kill! (:db test)))
  (on-nodes test [node] fdb/wipe!)
  (fdb/want! test node)
  (on-nodes test [node] (partial db/start! (:db test)))
  (or (settle! test change-seconds) :votes))

(defn- remove! [test node]
  (fdb/want-no-more! test node)
  (or (settle! test change-seconds)
      (try-for #(fdb/await-true (str "the end of " node) change-seconds
                                (fn [] (not (runs? test node)))))
      :ended))

(defn- after-the-last
  "One change after the other: f, once the one before it has been done."
  [test f]
  (if-let [why (settle! test change-seconds)]
    [:not-tried why]
    (f)))

(defn- heal-all!
  "As heal!, with all lock nodes as members: what takes a disk away needs the others."
  [test]
  (let [healed (heal! test)]
    (if (and (= :healed healed) (seq (former test)))
      (do (doseq [node (former test)]
            (add! test node))
          (heal! test))
      healed)))

(defn- let-in!
  "Lets a node without its data in again, as docs/operations/lost-disk.md says."
  [test node]
  (fdb/await-true (str "REPLACE of " node) 60 #(ask-leader! test "REPLACE" (fdb/id-of test node)))
  (fdb/await-serving test node)
  (fdb/await-true (str "the vote of " node) 60 #(fdb/all-vote? test)))

(defn- replace-node!
  "Takes a lock node's disk away and gives it another one."
  [test node]
  (or (try-for (fn []
                 (on-nodes test [node] (partial db/kill! (:db test)))
                 (on-nodes test [node] fdb/wipe!)
                 (on-nodes test [node] (partial db/start! (:db test)))
                 (let-in! test node)))
      [:replaced node]))

(defn- fewest
  "How many members stay: of five nodes three, of three two."
  [test]
  (max 2 (util/majority (count (fdb/lock-nodes test)))))

(defn- next-change
  "One node less, now and then the leader, or one more."
  [test _]
  (let [out  (former test)
        more (and (seq out) {:type :info, :f :add, :value (rand-nth out)})
        less (and (< (fewest test) (count (fdb/members test)))
                  {:type :info, :f :remove, :value (rand-nth [:leader (first (one test))])})]
    (rand-nth (filterv some? [more less]))))

(defn- member [opts]
  {:nemesis (nemesis {:replace (fn [test op]
                                 (let [healed (heal-all! test)]
                                   (if (= :healed healed)
                                     (replace-node! test (first (:value op)))
                                     [:not-tried healed])))
                      :add     (fn [test op]
                                 (after-the-last test #(let [node (:value op)]
                                                         [node (add! test node)])))
                      :remove  (fn [test op]
                                 (after-the-last
                                   test #(let [node (if (= :leader (:value op))
                                                      (or (fdb/leader test) (first (one test)))
                                                      (:value op))]
                                           [node (remove! test node)])))})
   :generator (gen/stagger (:interval opts)
                           (gen/mix [next-change next-change
                                     (fn [test _] {:type :info, :f :replace, :value (one test)})]))
   :perf #{{:name "member", :start #{:remove}, :stop #{:add}, :fs #{:replace}
            :color "#A0E9A4"}}})

(def flip-script
  "Turns one random bit around in a random file of the directory; prints which."
  (str "f=$(find \"$D\" -type f -size +0 ! -name lock | shuf -n 1); s=$(stat -c %s \"$f\"); "
       "at=$(shuf -i 0-$((s-1)) -n 1); "
       "b=$(od -An -tu1 -j \"$at\" -N 1 \"$f\" | tr -d ' '); "
       "x=$((b ^ (1 << $(shuf -i 0-7 -n 1)))); "
       "printf \"\\\\$(printf %03o \"$x\")\" | "
       "dd of=\"$f\" bs=1 seek=\"$at\" conv=notrunc status=none; echo \"$f at $at: $b, now $x\""))

(defn- flip-bit!
  "A bit of a node that is down. It must refuse to start, and then gets another disk; or it serves,
  since the bit meant nothing, which the judges of the histories then confirm."
  [test node]
  (on-nodes test [node] (partial db/kill! (:db test)))
  (let [where (get (on-nodes test [node]
                             (fn [test node]
                               (c/su (c/exec :sh :-c (str "D=" (fdb/data test node) "; "
                                                          flip-script)))))
                   node)]
    (on-nodes test [node] (partial db/start! (:db test)))
    (let [up? (try (fdb/await-true "an end or service" 60
                                   #(or (not (runs? test node))
                                        (fdb/ask test node 5000 "CHECK" "nothing" 1)))
                   (runs? test node)
                   (catch Exception _ :hangs))]
      [where (if (true? up?) :serves (replace-node! test node))])))

(defn- flip [opts]
  {:nemesis (nemesis {:flip (fn [test op]
                              (let [healed (heal-all! test)]
                                (if (= :healed healed)
                                  (flip-bit! test (first (:value op)))
                                  [:not-tried healed])))})
   :generator (gen/stagger (* 2 (:interval opts))
                           (fn [test _] {:type :info, :f :flip, :value (one test)}))
   :perf #{{:name "flip", :fs #{:flip}, :color "#E9A0D0"}}})

(defn- power-cut! [test nodes seed]
  (on-nodes test nodes (partial db/kill! (:db test)))
  (let [lost (into {} (for [node nodes]
                        [node (shim/lose-unsynced! test (fdb/shim-file test node)
                                                   (fdb/data test node) seed)]))]
    (on-nodes test nodes (partial db/start! (:db test)))
    lost))

(defn- power [opts]
  {:nemesis (nemesis {:power-cut (fn [test op]
                                   (power-cut! test (:value op)
                                               (rand-nth [0 (rand-int 1000000)])))})
   :generator (gen/stagger (* 2 (:interval opts))
                           (fn [test _]
                             {:type :info, :f :power-cut
                              :value (rand-nth [(vec (one test)) (fdb/members test)
                                                (vec (:nodes test)) [(fdb/store-node test)]])}))
   :perf #{{:name "power", :fs #{:power-cut}, :color "#808080"}}})

(def upgrade-seconds
  "How long an upgrade waits for a node before it goes on with the next: behind a partition it
  cannot serve, and that is none of the upgrade's."
  10)

(defn- upgrade-node! [test node]
  (try-for (fn []
             (on-nodes test [node] (fn [t n] (fdb/signal-service! t n "fencelockd" :TERM)))
             (on-nodes test [node] (partial db/start! (:db test)))
             (fdb/await-serving test node upgrade-seconds))))

(defn- upgrade [opts]
  {:nemesis (nemesis {:upgrade (fn [test _]
                                 (into {} (for [node (shuffle (fdb/members test))]
                                            [node (or (upgrade-node! test node) :restarted)])))})
   :generator (gen/stagger (* 3 (:interval opts)) (repeat {:type :info, :f :upgrade}))
   :perf #{{:name "upgrade", :fs #{:upgrade}, :color "#60A060"}}})

(def faults
  {:kill kill, :pause pause, :partition partitions, :clock clock, :disk-full disk-full, :power power
   :flip flip, :member member, :upgrade upgrade})

(def needs-shim
  "Faults of local nodes that the preloaded library makes."
  #{:clock :disk-full :power})

(defn why-not
  "Why a fault cannot be had, or nil."
  [opts fault]
  (cond
    (and (= fault :power) (not (:local opts)))
    "the fault power needs --local: the library that it preloads is this machine's"
    (and (#{:flip :member} fault) (< (count (:nodes opts)) 4))
    (str "the fault " (name fault) " takes a disk away, which a cluster of one cannot afford")))

(defn package
  "One package of all these faults, which ends with everybody healed."
  [opts]
  (let [heal  {:nemesis (nemesis {:heal (fn [test _] (heal! test))})
               :generator nil
               :perf #{}}
        all   (conj (mapv #((faults %) opts) (:faults opts)) heal)]
    (update (nc/compose-packages all) :final-generator
            (fn [more] (vec (concat more [(gen/once {:type :info, :f :heal})]))))))

(defn describe [opts]
  (if (empty? (:faults opts)) "none" (str/join "-" (map name (sort (:faults opts))))))
