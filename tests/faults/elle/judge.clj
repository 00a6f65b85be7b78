;; Gives the lists of each history.edn that is named to Elle. A line for each: whether it is strictly serializable, how many
;; transactions were answered, and which anomalies are in it. When it is one history, they are told, with pictures, in the
;; folder elle beside it.
(ns fencelock.elle.judge
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [elle.list-append :as list-append]
            [jepsen.history :as history])
  (:import (java.io PushbackReader)))

(defn- forms [file]
  (with-open [in (PushbackReader. (io/reader file))]
    (doall (take-while some? (repeatedly #(edn/read {:eof nil} in))))))

(defn- transactions [file]
  (->> (forms file)
       (filter #(= :txn (:f %)))
       (map #(select-keys % [:time :type :process :f :value]))
       (map-indexed #(assoc %2 :index %1))
       vec))

(defn- check [file ops]
  (try
    (list-append/check (cond-> {:consistency-models [:strict-serializable]}
                         (= 1 (count *command-line-args*))
                         (assoc :directory (str (io/file (.getParent (io/file file)) "elle"))))
                       (history/history ops))
    (catch AssertionError e ; as Elle says that no such history can be
      (binding [*out* *err*] (println (.getMessage e)))
      {:valid? false, :anomaly-types [:impossible]})))

(try
  (doseq [file *command-line-args*
          :let [ops     (transactions file)
                verdict (check file ops)]]
    (println (:valid? verdict) (count (filter #(= :ok (:type %)) ops))
             (sort (map name (:anomaly-types verdict)))))
  (finally (shutdown-agents)))
