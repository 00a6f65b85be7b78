(ns fencelock.jepsen.shim
  "The control file of tests/torture/shim.c, which local servers are started with when a fault needs
  it: clocks that jump or run wrong, disks that are full, and what a power cut leaves. The slots
  are read from tests/torture/shim.h, where the one list of them is."
  (:require [clojure.java.io :as io]
            [clojure.java.shell :as shell]
            [clojure.string :as str])
  (:import (java.io RandomAccessFile)))

(def root
  "Of the tree: two directories above the class path's entry that has this file."
  (delay (loop [dir (.getCanonicalFile (io/file (.toURI (io/resource "fencelock/jepsen/shim.clj"))))]
           (if (.exists (io/file dir "tests/torture/shim.h")) dir (recur (.getParentFile dir))))))

(defn enumerators
  "{name: value} of an enum of shim.h, whose enumerators have a number or the next one."
  [enum]
  (let [text (str/replace (slurp (io/file @root "tests/torture/shim.h")) #"(?s)/\*.*?\*/" "")
        body (second (re-find (re-pattern (str "(?s)enum " enum " \\{(.*?)\\};")) text))]
    (loop [entries (re-seq #"(\w+)(?:\s*=\s*(\d+))?" body), following 0, found {}]
      (if-let [[_ word number] (first entries)]
        (let [value (if number (parse-long number) following)]
          (recur (rest entries) (inc value) (assoc found word value)))
        found))))

(def slots (delay (enumerators "slot")))

(defn- slot [name] (@slots (str "SLOT_" name)))

(defn bytes-of-file
  "How long a control file is."
  []
  (* 8 (@slots "SLOTS")))

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
  (put! file (slot "FULL") (if full? 1 0)))

(defn wall-ms!
  "How far the wall clock is off."
  [file ms]
  (put! file (slot "WALL_NS") (* 1000000 (long ms))))

(defn rate!
  "The monotonic clock goes on from where it is, faster or slower by so many millionths."
  [file ppm]
  (let [paces-at (slot "PACES")
        old    (get-slot file (slot "PACE"))
        [rate since ahead] (for [i (range 3)] (get-slot file (+ paces-at (* 3 old) i)))
        now    (System/nanoTime)
        ahead' (+ ahead (* rate (quot (- now since) 1000000)))]
    (doseq [[i value] (map-indexed vector [ppm now ahead'])]
      (put! file (+ paces-at (* 3 (- 1 old)) i) value))
    (put! file (slot "PACE") (- 1 old))))

(defn lose-unsynced!
  "After the process was killed: takes back from its files what was never synced."
  [test file data seed]
  (let [done (shell/sh "/usr/bin/python3" "-B" (str @root "/jepsen/local/lose_unsynced.py")
                       file data (str seed)
                       :env (merge (into {} (System/getenv)) {"FENCELOCK_BUILD" (:build test)}))]
    (when-not (zero? (:exit done))
      (throw (ex-info (str "taking back what was not synced: " (:err done)) {})))
    (str/trim (:out done))))
