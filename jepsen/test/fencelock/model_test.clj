(ns fencelock.model-test
  "The models on histories made by hand: what may be, and what may not."
  (:require [clojure.test :refer [deftest is testing]]
            [fencelock.model :as model]))

(defn- lock
  "What comes of these steps: :fine, or what is wrong with the first that is."
  [& steps]
  (loop [state model/free-lock, steps steps]
    (if-let [[owner f value] (first steps)]
      (let [state (model/lock-step state owner f value)]
        (if (:wrong state) (:wrong state) (recur state (rest steps))))
      :fine)))

(defn- fine? [& steps] (= :fine (apply lock steps)))
(defn- wrong? [& steps] (string? (apply lock steps)))

(defn- alone [token] {:mode :exclusive, :token token})
(defn- shared [token] {:mode :shared, :token token})
(defn- permit [token] {:mode :permits, :permits 2, :token token})

(deftest a-lock-taken-alone
  (is (fine? [0 :acquire (alone 5)] [0 :acquire (alone 5)] [1 :acquire (alone nil)]
             [0 :check {:token 5 :held true}] [0 :release {:token 5 :done true}]
             [0 :check {:token 5 :held false}] [0 :release {:token 5 :done false}]
             [1 :acquire (alone 6)]))
  (is (wrong? [0 :acquire (alone 5)] [1 :acquire (alone 6)]) "two hold it")
  (is (wrong? [0 :acquire (alone 5)] [0 :acquire (alone 6)]) "the token grows under its holder")
  (is (wrong? [0 :acquire (alone 5)] [0 :release {:token 5 :done true}] [1 :acquire (alone 5)])
      "a token twice")
  (is (wrong? [0 :acquire (alone 5)] [0 :release {:token 5 :done true}] [1 :acquire (alone 4)])
      "a token goes back")
  (is (wrong? [0 :acquire (alone nil)]) "free, and refused")
  (is (wrong? [0 :acquire (alone 5)] [0 :check {:token 5 :held false}]) "lost")
  (is (wrong? [0 :acquire (alone 5)] [0 :release {:token 5 :done false}])
      "held, and not given back")
  (is (wrong? [0 :release {:token 5 :done true}]) "given back, and not held"))

(deftest unknown-outcomes
  (let [asked {:mode :exclusive}]
    (is (fine? [0 :acquire asked] [1 :acquire (alone nil)] [0 :acquire (alone 3)]))
    (is (fine? [0 :acquire asked] [0 :release {}] [1 :acquire (alone 3)]))
    (is (fine? [0 :acquire (alone 3)] [0 :release {}] [0 :release {}] [1 :acquire (alone 4)]))
    (is (fine? [1 :acquire (alone 3)] [0 :acquire asked] [1 :check {:token 3 :held true}]))
    (is (wrong? [0 :acquire asked] [1 :acquire (alone 3)])
        "granted to an unknown one, then to another")
    (is (fine? [0 :release {}] [0 :check {}]))))

(deftest readers-and-writers
  (is (fine? [0 :acquire (shared 1)] [1 :acquire (shared 2)] [2 :acquire (alone nil)]
             [0 :release {:token 1 :done true}] [2 :acquire (alone nil)]
             [1 :release {:token 2 :done true}] [2 :acquire (alone 3)] [0 :acquire (shared nil)]))
  (is (wrong? [0 :acquire (shared 1)] [2 :acquire (alone 2)]) "a writer beside a reader")
  (is (wrong? [0 :acquire (alone 1)] [2 :acquire (shared 2)]) "a reader beside a writer")
  (is (wrong? [0 :acquire (shared 1)] [1 :acquire (shared nil)])
      "a reader is kept out by a reader"))

(deftest a-semaphore
  (is (fine? [0 :acquire (permit 1)] [1 :acquire (permit 2)] [2 :acquire (permit nil)]
             [1 :release {:token 2 :done true}] [2 :acquire (permit 3)]))
  (is (wrong? [0 :acquire (permit 1)] [1 :acquire (permit 2)] [2 :acquire (permit 3)])
      "one holder too many")
  (is (wrong? [0 :acquire (permit 1)] [1 :acquire (permit nil)]) "a permit is left")
  (let [asked {:mode :permits, :permits 2}]
    (is (fine? [2 :acquire (permit 4)] [0 :acquire asked] [2 :release {:token 4 :done true}]
               [1 :acquire (permit 6)] [0 :acquire (permit 5)])
        "a token is told after a larger one")
    (is (wrong? [2 :acquire (permit 4)] [0 :acquire asked] [0 :acquire (permit 3)])
        "a token that is older than the request")))

(defn- register [& steps]
  (loop [state model/empty-register, steps steps]
    (if-let [[f value] (first steps)]
      (let [state (model/register-step state f value)]
        (if (:wrong state) (:wrong state) (recur state (rest steps))))
      :fine)))

(deftest a-fenced-register
  (testing "new, equal and old tokens"
    (is (= :fine (register [:write {:token 3 :value 1 :stale false}]
                           [:write {:token 3 :value 2 :stale false}]
                           [:read {:token 5 :value 2 :stale false}]
                           [:write {:token 4 :value 9 :stale true}]
                           [:read {:token 4 :stale true}]
                           [:look {:value 2 :stale false}]))))
  (testing "unknown outcomes"
    (is (= :fine (register [:write {:token 3 :value 1}] [:look {:value 1 :stale false}])))
    (is (= :fine (register [:read {:token 7}] [:write {:token 6 :value 1 :stale true}])))
    (is (= :fine (register [:read {:token 7}] [:write {:token 6 :value 1}]
                           [:look {:value nil :stale false}]))))
  (doseq [[why & steps]
          [["accepted below the mark" [:write {:token 3 :value 1 :stale false}]
            [:write {:token 2 :value 2 :stale false}]]
           ["accepted below what was only read with" [:read {:token 3 :value nil :stale false}]
            [:write {:token 2 :value 2 :stale false}]]
           ["refused at the mark" [:write {:token 3 :value 1 :stale false}]
            [:write {:token 3 :value 1 :stale true}]]
           ["a write is lost" [:write {:token 3 :value 1 :stale false}]
            [:look {:value nil :stale false}]]
           ["a read of something else" [:write {:token 3 :value 1 :stale false}]
            [:read {:token 3 :value 2 :stale false}]]]]
    (is (string? (apply register steps)) why)))
