(ns fencelock.judges-test
  "The judges on histories made by hand. Each good one passes; each anomaly is found, by its name."
  (:require [clojure.test :refer [deftest is testing]]
            [fencelock.judge.bank :as bank]
            [fencelock.judge.holders :as holders]
            [fencelock.judge.keys :as keys]
            [fencelock.judge.queue :as queue]
            [fencelock.judge.sessions :as sessions]
            [fencelock.judge.tokens :as tokens]
            [fencelock.judge.watch :as watch]))

(defn- history
  "Operations from [type process f value] and a time: the place in seconds when none is given."
  [& rows]
  (map-indexed (fn [i [type process f value time]]
                 {:type type, :process process, :f f, :value value, :index i
                  :time (or time (* i 1000000000))})
               rows))

(defn- found [verdict] (set (map :anomaly (:anomalies verdict))))

(deftest of-tokens
  (let [good (history [:invoke 0 :acquire 1] [:invoke 1 :draw nil] [:ok 0 :acquire {:token 2}]
                      [:ok 1 :draw {:token 1}] [:invoke 0 :draw nil] [:info 0 :draw nil]
                      [:invoke :nemesis :kill nil] [:invoke 2 :draw nil] [:ok 2 :draw {:token 4}])]
    (is (= {:valid? true, :tokens 3, :highest 4}
           (select-keys (tokens/judge good) [:valid? :tokens :highest]))))
  (testing "twice, also by requests at the same time"
    (is (= #{:token-twice}
           (found (tokens/judge (history [:invoke 0 :draw nil] [:invoke 1 :draw nil]
                                         [:ok 0 :draw {:token 2}] [:ok 1 :draw {:token 2}]))))))
  (testing "back"
    (is (= #{:token-went-back}
           (found (tokens/judge (history [:invoke 0 :draw nil] [:ok 0 :draw {:token 9}]
                                         [:invoke 1 :draw nil] [:ok 1 :draw {:token 8}]))))))
  (testing "no token"
    (doseq [token [0 -1 9007199254740992]]
      (is (= #{:not-a-token}
             (found (tokens/judge (history [:invoke 0 :draw nil]
                                           [:ok 0 :draw {:token token}]))))))))

(defn- moved [id] {:from 0, :to 1, :amount 5, :id id})
(defn- saw [a b] {:accounts {0 a, 1 b}})

(deftest of-the-bank
  (let [before [[:invoke 0 :move (moved 1)] [:ok 0 :move (moved 1)]]
        judge  (fn [& rows] (bank/judge 2 (apply history (concat before rows))))]
    (is (true? (:valid? (judge [:invoke 1 :read nil] [:ok 1 :read (saw {1 -5} {1 5})]))))
    (is (= :unknown (:valid? (judge))))
    (testing "half of a move that nobody acknowledged"
      (is (true? (:valid? (judge [:invoke 0 :move (moved 2)] [:info 0 :move (moved 2)]
                                 [:invoke 1 :read nil] [:ok 1 :read (saw {1 -5, 2 -5} {1 5})])))))
    (testing "lost in one, and in both"
      (is (contains? (found (judge [:invoke 1 :read nil] [:ok 1 :read (saw {1 -5} {})])) :lost))
      (is (= #{:lost} (found (judge [:invoke 1 :read nil] [:ok 1 :read (saw {} {})])))))
    (testing "seen by half while it was made"
      (is (contains? (found (bank/judge 2 (history [:invoke 0 :move (moved 1)] [:invoke 1 :read nil]
                                                   [:ok 1 :read (saw {1 -5} {})]
                                                   [:ok 0 :move (moved 1)])))
                     :half-a-move)))
    (testing "the sum"
      (is (contains? (found (judge [:invoke 1 :read nil] [:ok 1 :read (saw {1 -5} {1 4})]))
                     :sum)))))

(defn- waited [token seen] {:lock "l", :token token, :queued-at (when seen (* seen 1000000000))})

(deftest of-the-queue
  (let [judge (fn [expected & rows] (queue/judge expected (apply history rows)))]
    (is (true? (:valid? (judge nil [:invoke 0 :wait nil] [:invoke 1 :wait nil]
                               [:ok 0 :wait (waited 1 0)] [:ok 1 :wait (waited 2 2)]))))
    (testing "asked at the same time: any order"
      (is (true? (:valid? (judge nil [:invoke 0 :wait nil] [:invoke 1 :wait nil]
                                 [:ok 0 :wait (waited 2 1.5)] [:ok 1 :wait (waited 1 1.5)])))))
    (testing "a place that was not seen says nothing"
      (is (true? (:valid? (judge nil [:invoke 0 :wait nil] [:invoke 1 :wait nil]
                                 [:ok 1 :wait (waited 1 nil)] [:ok 0 :wait (waited 2 nil)])))))
    (testing "overtaken"
      (is (= #{:overtaken}
             (found (judge nil [:invoke 0 :wait nil] [:invoke 1 :wait nil]
                           [:ok 1 :wait (waited 1 nil)] [:ok 0 :wait (waited 2 0.5)])))))
    (testing "after the faults"
      (is (true? (:valid? (judge 1 [:invoke 0 :wait nil] [:ok 0 :wait (waited 1 nil)]
                                 [:invoke 0 :last nil] [:ok 0 :last (waited 2 nil)]))))
      (is (= #{:not-granted-after-the-faults}
             (found (judge 1 [:invoke 0 :wait nil] [:ok 0 :wait (waited 1 nil)]
                           [:invoke 0 :last nil] [:fail 0 :last nil]))))
      (is (= #{:late-after-the-faults}
             (found (judge 1 [:invoke 0 :wait nil] [:ok 0 :wait (waited 1 nil)]
                           [:invoke 0 :last nil] [:ok 0 :last (waited 2 nil) 90000000000])))))))

(defn- lock-answer [type process token & {:keys [mode permits] :or {mode :exclusive permits 2}}]
  [type process :acquire {:owner process, :mode mode, :permits permits, :token token}])

(deftest of-holders
  (let [ask     (fn [process] [:invoke process :acquire nil])
        release [[:invoke 0 :release {:owner 0}] [:ok 0 :release {:owner 0, :token 1, :done true}]]
        judge   (fn [& rows] (holders/judge (apply history rows)))
        first-held [(ask 0) (lock-answer :ok 0 1)]]
    (is (true? (:valid? (apply judge (concat first-held [(ask 1) (lock-answer :ok 1 nil)]
                                             [(ask 0) (lock-answer :ok 0 1)] release
                                             [(ask 1) (lock-answer :ok 1 2)])))))
    (testing "too many"
      (is (= #{:held-by-too-many}
             (found (apply judge (concat first-held [(ask 1) (lock-answer :ok 1 2)])))))
      (is (= #{:held-by-too-many}
             (found (apply judge (for [p [0 1 2], row [(ask p) (lock-answer :ok p (inc p)
                                                                            :mode :permits)]]
                                   row))))))
    (testing "readers together"
      (is (true? (:valid? (apply judge (for [p [0 1 2], row [(ask p) (lock-answer :ok p (inc p)
                                                                                  :mode :shared)]]
                                         row))))))
    (testing "a token twice, a token that goes back"
      (is (= #{:token-twice}
             (found (apply judge (concat first-held release [(ask 1) (lock-answer :ok 1 1)])))))
      (is (= #{:token-went-back}
             (found (judge (ask 0) (lock-answer :ok 0 5)
                           [:invoke 0 :release {:owner 0}] [:ok 0 :release {:owner 0}]
                           (ask 1) (lock-answer :ok 1 4))))))))

(defn- one [session lease & more]
  (apply hash-map :session session :lease lease more))

(deftest of-sessions
  (let [took   [[:invoke 0 :open nil] [:ok 0 :open (one "a" :long)]
                [:invoke 0 :take nil] [:ok 0 :take (one "a" :long :lock "l" :token 1)]]
        judge  (fn [& rows] (sessions/judge (apply history (concat took rows))))
        closed [[:invoke 0 :close nil] [:ok 0 :close (one "a" :long :done true)]]]
    (is (true? (:valid? (apply judge (concat [[:invoke 0 :check nil]
                                              [:ok 0 :check (one "a" :long :lock "l" :token 1
                                                                 :held true)]]
                                             closed
                                             [[:invoke 1 :take nil]
                                              [:ok 1 :take (one "b" :long :lock "l" :token 2)]
                                              [:invoke 0 :take nil]
                                              [:ok 0 :take (one "a" :long :lock "l"
                                                                :gone true)]])))))
    (testing "while a close is under way, anything"
      (is (true? (:valid? (judge [:invoke 0 :close nil] [:info 0 :close (one "a" :long)]
                                 [:invoke 1 :take nil]
                                 [:ok 1 :take (one "b" :long :lock "l" :token 2)])))))
    (testing "alive after its end"
      (is (= #{:alive-after-close}
             (found (apply judge (concat closed
                                         [[:invoke 0 :check nil]
                                          [:ok 0 :check (one "a" :long :lock "l" :token 1
                                                             :held true)]]))))))
    (testing "lost before its end"
      (is (= #{:lost-early}
             (found (judge [:invoke 0 :check nil]
                           [:ok 0 :check (one "a" :long :lock "l" :token 1 :held false)])))))
    (testing "one that may never have been opened"
      (is (true? (:valid? (judge [:invoke 2 :open nil] [:info 2 :open (one "d" :long)]
                                 [:invoke 2 :take nil]
                                 [:ok 2 :take (one "d" :long :lock "m" :gone true)])))))
    (testing "a short one may have ended"
      (is (true? (:valid? (judge [:invoke 0 :check nil]
                                 [:ok 0 :check (one "c" :short :lock "m" :token 9 :held false)])))))
    (testing "held by two"
      (is (= #{:held-twice}
             (found (judge [:invoke 1 :take nil]
                           [:ok 1 :take (one "b" :short :lock "l" :token 2)])))))
    (testing "never ended"
      (is (= #{:never-ended} (found (judge [:invoke 1 :ended nil] [:ok 1 :ended {:left 1}])))))))

(defn- ms [n] (* n 1000000))

(deftest of-sessions-that-are-kept
  (let [lease (:kept sessions/leases)
        kept  [[:invoke 0 :open :kept (ms 0)] [:ok 0 :open (one "a" :kept) (ms 10)]
               [:invoke 0 :take nil (ms 20)] [:invoke 1 :take nil (ms 30)]
               [:ok 0 :take (one "a" :kept :lock "l" :token 1) (ms 40)]]
        ; Asked for at 1000, and answered.
        renewed [[:invoke 0 :renew nil (ms 1000)] [:ok 0 :renew (one "a" :kept) (ms 1600)]]
        taken   (fn [at] [[:ok 1 :take (one "b" :short :lock "l" :token 2) (ms at)]])
        over    (+ 1000 lease)
        judge   (fn [fast & parts]
                  (found (sessions/judge fast (apply history (apply concat kept parts)))))]
    (testing "a renewal holds from when it was asked for, for its lease and no longer"
      (is (= #{:held-twice} (judge 1 renewed (taken (dec over)))))
      (is (= #{} (judge 1 renewed (taken over)))))
    (testing "without one the lease is that of the opening"
      (is (= #{:held-twice} (judge 1 (taken (dec lease)))))
      (is (= #{} (judge 1 (taken lease)))))
    (testing "a renewal that was not answered, or answered that nobody is there, prolongs nothing"
      (is (= #{} (judge 1 [[:invoke 0 :renew nil (ms 1000)]
                           [:info 0 :renew (one "a" :kept) (ms 1600)]]
                        (taken lease))))
      (is (= #{} (judge 1 (taken lease)
                        [[:invoke 0 :renew nil (ms (+ 1 lease))]
                         [:ok 0 :renew (one "a" :kept :gone true) (ms (+ 2 lease))]]))))
    (testing "a renewal proves that the session was there before it, too"
      (is (= #{:held-twice}
             (judge 1 (taken lease) [[:invoke 0 :renew nil (ms (+ 10 lease))]
                                     [:ok 0 :renew (one "a" :kept) (ms (+ 20 lease))]]))))
    (testing "gone, or a lock lost, before the last renewal's lease is over"
      (doseq [[f value] [[:renew (one "a" :kept :gone true)]
                         [:take (one "a" :kept :lock "m" :gone true)]
                         [:check (one "a" :kept :lock "l" :token 1 :held false)]]
              [at wrong] [[(dec over) #{:lost-early}] [over #{}]]]
        (is (= wrong (judge 1 renewed [[:invoke 0 f nil (ms (- over 10))]
                                       [:ok 0 f value (ms at)]])))))
    (testing "a server whose clock runs fast"
      (is (= #{} (judge 6/5 renewed (taken (dec over)))))
      (is (= #{:held-twice} (judge 6/5 renewed (taken (+ 999 (quot lease 6/5)))))))
    (testing "who asked first and was granted before says nothing"
      (is (= #{} (judge 1 [[:ok 1 :take (one "b" :short :lock "l" :token 0) (ms 50)]]))))
    (testing "a renewal after the end"
      (is (= #{:alive-after-close}
             (judge 1 [[:invoke 0 :close nil (ms 50)]
                       [:ok 0 :close (one "a" :kept :done true) (ms 60)]
                       [:invoke 0 :renew nil (ms 70)] [:ok 0 :renew (one "a" :kept) (ms 80)]]))))
    (testing "those that lived by renewals alone are counted"
      (is (= [0 1] (for [more [[] renewed]]
                     (:outlived (sessions/judge (apply history (concat kept more))))))))))

(defn- granted [token & {:keys [lock owner] :or {lock "l" owner "o"}}]
  {:event "granted", :lock lock, :owner owner, :token token, :clock token})
(defn- released [token] {:event "released", :lock "l", :owner "o", :token token, :clock token})
(defn- held [token] {:lock "l", :owner "o", :token token, :released true})
(defn- watched [from to & events]
  {:from from, :to to, :node "n1", :ended-at 100000000000, :events events})

(deftest of-events
  (let [holds (mapcat (fn [token] [[:invoke 0 :hold nil] [:ok 0 :hold (held token)]]) [2 3])
        judge (fn [& watches]
                (watch/judge (apply history
                                    (concat holds
                                            (mapcat (fn [w]
                                                      [[:invoke 9 :watch nil] [:ok 9 :watch w]])
                                                    watches)))))]
    (is (true? (:valid? (judge (watched 1 4 (granted 2) (released 2) (granted 3) (released 3)
                                        (granted 4))))))
    (testing "what lies outside of the marks says nothing"
      (is (true? (:valid? (judge (watched 2 4 (granted 3) (released 3) (granted 4)))))))
    (testing "lost"
      (is (contains? (found (judge (watched 1 4 (granted 2) (released 2) (granted 4))))
                     :grant-not-told))
      (is (= #{:end-not-told} (found (judge (watched 1 4 (granted 2) (granted 3) (released 3)
                                                     (granted 4)))))))
    (testing "another owner is told"
      (is (contains? (found (judge (watched 1 4 (granted 2 :owner "x") (released 2) (granted 3)
                                            (released 3) (granted 4))))
                     :grant-not-told)))
    (testing "twice"
      (is (contains? (found (judge (watched 1 4 (granted 2) (granted 2) (released 2) (granted 3)
                                            (released 3) (granted 4))))
                     :grants-out-of-order))
      (is (= #{:ended-twice} (found (judge (watched 1 4 (granted 2) (released 2) (released 2)
                                                    (granted 3) (released 3) (granted 4)))))))
    (testing "out of order"
      (is (contains? (found (judge (watched 1 4 (granted 3) (released 3) (granted 2) (released 2)
                                            (granted 4))))
                     :grants-out-of-order)))
    (testing "two who hear different things"
      (is (contains? (found (judge (watched 1 6 (granted 2) (released 2) (granted 3) (released 3)
                                            (granted 5 :owner "x") (granted 6))
                                   (watched 1 6 (granted 2) (released 2) (granted 3) (released 3)
                                            (granted 6))))
                     :told-differently)))))

(deftest of-many-keys
  (let [good   {:valid? true}
        bad    {:valid? false}
        silent (bank/judge 2 (history [:invoke 0 :move (moved 1)] [:info 0 :move (moved 1)]))
        both   {:valid? :unknown, :order {:valid? true}, :holders silent}
        given-up {:valid? :unknown, :order {:valid? :unknown}, :holders silent}]
    (is (= {:valid? true, :silent-keys []} (keys/verdict {0 good, 1 good})))
    (is (= {:valid? true, :silent-keys [0 2]} (keys/verdict {0 silent, 1 good, 2 both})))
    (is (= :unknown (:valid? (keys/verdict {0 given-up, 1 good}))))
    (is (= :unknown (:valid? (keys/verdict {0 silent}))))
    (is (= :unknown (:valid? (keys/verdict {}))))
    (is (false? (:valid? (keys/verdict {0 silent, 1 bad, 2 good}))))))
