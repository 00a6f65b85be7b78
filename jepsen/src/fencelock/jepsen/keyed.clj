(ns fencelock.jepsen.keyed
  "A checker for each key, and one verdict for all."
  (:require [fencelock.judge.keys :as keys]
            [jepsen.checker :as checker]
            [jepsen.independent :as independent]))

(defn checker
  "As independent/checker, but that keys which say nothing leave the verdict to the others."
  [inner]
  (let [each (independent/checker inner)]
    (reify checker/Checker
      (check [_ test history opts]
        (let [found (checker/check each test history opts)]
          (merge found (keys/verdict (:results found))))))))
