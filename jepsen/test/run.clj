;; Runs the tests that need Clojure alone: clojure.main test/run.clj, with src and test on the
;; class path.
(require 'clojure.test)

(def namespaces
  '[fencelock.wire-test fencelock.model-test fencelock.judges-test fencelock.shim-test])

(apply require namespaces)

(let [{:keys [pass fail error]} (apply clojure.test/run-tests namespaces)]
  (shutdown-agents)
  (System/exit (if (and (pos? pass) (zero? (+ fail error))) 0 1)))
