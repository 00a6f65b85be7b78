(ns fencelock.shim-test
  "The control file of tests/torture/shim.c: what is set here must be what the library does to a
  program. tests/lib/shim_test.py asks the same of the other reader of shim.h."
  (:require [clojure.java.io :as io]
            [clojure.java.shell :as shell]
            [clojure.string :as str]
            [clojure.test :refer [deftest is testing]]
            [fencelock.jepsen.shim :as shim])
  (:import (java.nio.file Files)
           (java.nio.file.attribute FileAttribute)))

(def library (io/file (System/getenv "FENCELOCK_BUILD") "tests/torture/fencelock_shim_plain.so"))

(defn- said-by
  "What a Python program says that runs under the shim with this control file."
  [control dir program]
  (let [done (shell/sh "/usr/bin/python3" "-B" "-c" program
                       :dir dir
                       :env (merge (into {} (System/getenv))
                                   {"LD_PRELOAD" (str library), "FENCELOCK_SHIM" control
                                    "FENCELOCK_SHIM_DIR" dir}))]
    (str/trim (str (:out done) (:err done)))))

(defn- with-control [f]
  (let [dir     (str (Files/createTempDirectory "shim" (make-array FileAttribute 0)))
        control (str dir ".control")]
    (with-open [out (io/output-stream control)]
      (.write out (byte-array (shim/bytes-of-file))))
    (try (f control dir)
         (finally (run! #(.delete (io/file %)) [(str dir "/new") control dir])))))

(def ahead-s "import time; print(round(time.time() - time.clock_gettime(time.CLOCK_TAI)))")

(deftest a-wall-clock-jumps
  (with-control
    (fn [control dir]
      (let [before (parse-long (said-by control dir ahead-s))]
        (shim/wall-ms! control 3600000)
        (is (= 3600 (- (parse-long (said-by control dir ahead-s)) before)))))))

(deftest a-monotonic-clock-runs-ahead
  (with-control
    (fn [control dir]
      (let [began (System/nanoTime)]
        (shim/rate! control 1000000000) ; a thousand times as fast
        (Thread/sleep 50)
        (let [there (parse-long (said-by control dir "import time; print(time.monotonic_ns())"))]
          (is (< 10000000000 (- there (System/nanoTime))) "50 s have passed there, or more"))))))

(deftest a-disk-is-full
  (with-control
    (fn [control dir]
      (let [program "open('new', 'w').close(); print('made')"]
        (is (= "made" (said-by control dir program)))
        (.delete (io/file dir "new"))
        (shim/full! control true)
        (testing "and has room again"
          (is (str/includes? (said-by control dir "import os; os.open('new', os.O_CREAT)") "No space"))
          (shim/full! control false)
          (is (= "made" (said-by control dir program))))))))
