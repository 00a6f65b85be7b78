(ns fencelock.jepsen.shim
  "The control file of tests/torture/shim.c, which local servers are started with when a fault needs
  it: clocks that jump or run wrong, disks that are full, and what a power cut leaves. The slots
  are those of tests/lib/shim.py."
  (:require [clojure.java.io :as io]
            [clojure.java.shell :as shell]
            [clojure.string :as str])
  (:import (java.io RandomAccessFile)))

(def slots {:full 4, :wall-ns 5, :pace 8})
(def paces-at 9)

(defn- put! [file slot value]
  (with-open [f (RandomAccessFile. ^String file "rw")]
    (.seek f (* 8 slot))
    (.writeLong f (Long/reverseBytes (long value)))))

(defn- get-slot [file slot]
  (with-open [f (RandomAccessFile. ^String file "r")]
    (.seek f (* 8 slot))
    (Long/reverseBytes (.readLong f))))

(defn full!
  "Whether the disk has no room from now on."
  [file full?]
  (put! file (:full slots) (if full? 1 0)))

(defn wall-ms!
  "How far the wall clock is off."
  [file ms]
  (put! file (:wall-ns slots) (* 1000000 (long ms))))

(defn rate!
  "The monotonic clock goes on from where it is, faster or slower by so many millionths."
  [file ppm]
  (let [old    (get-slot file (:pace slots))
        [rate since ahead] (for [i (range 3)] (get-slot file (+ paces-at (* 3 old) i)))
        now    (System/nanoTime)
        ahead' (+ ahead (* rate (quot (- now since) 1000000)))]
    (doseq [[i value] (map-indexed vector [ppm now ahead'])]
      (put! file (+ paces-at (* 3 (- 1 old)) i) value))
    (put! file (:pace slots) (- 1 old))))

(defn lose-unsynced!
  "After the process was killed: takes back from its files what was never synced."
  [test file data seed]
  (let [root (.getCanonicalPath (io/file ".."))
        done (shell/sh "/usr/bin/python3" "-B" (str root "/jepsen/local/lose_unsynced.py")
                       file data (str seed)
                       :env (merge (into {} (System/getenv)) {"FENCELOCK_BUILD" (:build test)}))]
    (when-not (zero? (:exit done))
      (throw (ex-info (str "taking back what was not synced: " (:err done)) {})))
    (str/trim (:out done))))
