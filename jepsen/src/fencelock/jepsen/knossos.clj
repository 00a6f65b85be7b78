(ns fencelock.jepsen.knossos
  "The models of fencelock.model as Knossos asks for them. It remembers steps by :f and :value
  alone, so the owner of an operation on a lock stands in its value."
  (:require [clojure.tools.logging :refer [warn]]
            [fencelock.model :as model]
            [jepsen.checker :as checker]
            [jepsen.store :as store]
            [knossos.linear :as linear]
            [knossos.linear.report :as report]
            [knossos.model :as knossos]
            [knossos.search :as search]
            [knossos.wgl :as wgl])
  (:import (knossos.model Model)))

(defn- answer [state make]
  (if (:wrong state)
    (knossos/inconsistent (:wrong state))
    (make state)))

(defrecord Lock [state]
  Model
  (step [_ op]
    (answer (model/lock-step state (:owner (:value op)) (:f op) (:value op)) ->Lock)))

(defrecord Register [state]
  Model
  (step [_ op]
    (answer (model/register-step state (:f op) (:value op)) ->Register)))

(defn lock [] (->Lock model/free-lock))
(defn register [] (->Register model/empty-register))

(def search-ms
  "Where answers are wrong all orders have to be tried, which may take for ever."
  60000)

(defn- search
  "Both of Knossos's algorithms, whichever ends first; neither goes on after the time is over."
  [model history]
  (let [both (search/competition {:linear (linear/start-analysis model history)
                                  :wgl    (wgl/start-analysis model history)})]
    (try
      (search/run both {:time-limit search-ms})
      (finally (search/abort! both :done)))))

(defn- render! [test history analysis opts]
  (try
    (report/render-analysis! history analysis
                             (.getCanonicalPath
                               (store/path! test (:subdirectory opts) "linear.svg")))
    (catch Throwable e
      (warn e "no picture of the analysis"))))

(defn checker
  "Whether an order of all operations explains the answers. :unknown when time or memory ended."
  [model]
  (reify checker/Checker
    (check [_ test history opts]
      ; A few of the paths: a lazy rest would keep all of them in memory until the run's end.
      (let [analysis (-> (search model history)
                         (update :final-paths #(vec (take 5 %)))
                         (update :configs #(vec (take 5 %))))]
        (when (false? (:valid? analysis))
          (render! test history analysis opts))
        analysis))))
