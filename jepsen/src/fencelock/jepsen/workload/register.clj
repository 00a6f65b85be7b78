(ns fencelock.jepsen.workload.register
  "A register of the storage under new, old and equal tokens, by Knossos: nothing is accepted below
  the mark, nothing refused at or above it, and reads see what was accepted. The storage takes
  any token, so a counter of the test hands them out."
  (:require [fencelock.jepsen.client :as client]
            [fencelock.jepsen.keyed :as keyed]
            [fencelock.jepsen.knossos :as knossos]
            [jepsen.client :as jepsen]
            [jepsen.generator :as gen]
            [jepsen.independent :as independent]))

(def threads 3)
(def operations-a-key 100)

(defn- fenced
  "What f answers; STALE is an answer as well."
  [f]
  (try
    (assoc (f) :stale false)
    (catch clojure.lang.ExceptionInfo e
      (if (= :stale (:word (ex-data e)))
        {:stale true}
        (throw e)))))

(defn- invoke [links op]
  (let [[key {:keys [token value] :as asked}] (:value op)
        name (str "register-" key)
        got  (case (:f op)
               :write (fenced #(do (client/store! links "SET" name value "FENCE" name token)
                                   {:value value}))
               :read  (fenced (fn [] {:value (some-> (client/store! links "GET" name
                                                                    "FENCE" name token)
                                                     parse-long)}))
               :look  {:value (some-> (client/store! links "GET" name) parse-long), :stale false})]
    (assoc op :type :ok, :value (independent/tuple key (merge asked got)))))

(defrecord Client [links]
  jepsen/Client
  (open! [this test node] (assoc this :links (client/links test node)))
  (setup! [_ _])
  (invoke! [_ _ op]
    (client/answering op (not= :look (:f op))
      (invoke links op)))
  (teardown! [_ _])
  (close! [_ _] (client/close! links)))

(defn- token
  "A new one as often as one of the last few."
  [counter]
  (if (zero? (rand-int 2))
    (swap! counter inc)
    (max 1 (- @counter (rand-int 4)))))

(defn- operations [_key]
  (let [counter (atom 1)]
    (->> (gen/mix [(fn [] {:f :write, :value {:token (token counter), :value (rand-int 1000)}})
                   (fn [] {:f :write, :value {:token (token counter), :value (rand-int 1000)}})
                   (fn [] {:f :read, :value {:token (token counter)}})
                   (fn [] {:f :look, :value {}})])
         (gen/limit operations-a-key))))

(defn workload [opts]
  {:client    (->Client nil)
   :generator (independent/concurrent-generator
                threads (range)
                (fn [key]
                  (gen/stagger (client/key-interval opts threads) (operations key))))
   :final     nil
   :checker   (keyed/checker (knossos/checker (knossos/register)))})
