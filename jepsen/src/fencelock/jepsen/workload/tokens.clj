(ns fencelock.jepsen.workload.tokens
  "Tokens: unique, larger than all that were completed before, over all locks; never back, whatever
  happens to nodes and disks. Locks are taken for a moment, and TOKEN draws one without a lock."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.judge.tokens :as judge]
            [jepsen.checker :as checker]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]))

(def locks 20)

(defn- acquire! [links op]
  (let [name  (str "tokens-" (:value op))
        token (client/lock! links "ACQUIRE" name "TTL" 2000 "OWNER" (client/new-owner))]
    (if (nil? token)
      (assoc op :type :fail, :error :held)
      (do (client/quietly #(client/lock! links "RELEASE" name token))
          (assoc op :type :ok, :value {:lock name, :token token})))))

(defrecord Client [links]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (client/answering op true
      (case (:f op)
        :acquire (acquire! links op)
        :draw    (assoc op :type :ok
                           :value {:token (client/lock! links "TOKEN" "tokens-drawn")}))))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn workload [opts]
  {:client    (->Client nil)
   :generator (->> (gen/mix [(fn [] {:f :acquire, :value (rand-int locks)})
                             (fn [] {:f :acquire, :value (rand-int locks)})
                             (repeat {:f :draw})])
                   (gen/stagger (/ (:rate opts))))
   ; After everything, each client draws one more: it must be above all.
   :final     (gen/each-thread (gen/until-ok (gen/delay 1/5 (repeat {:f :draw}))))
   :checker   (reify checker/Checker
                (check [_ _ history _]
                  (judge/judge history)))})
