(ns fencelock.jepsen.index
  "store/index.html: every run that is stored, with its verdict and where to look."
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [clojure.string :as str]
            [jepsen.store :as store])
  (:import (java.io File PushbackReader)))

(defn- escape [text]
  (-> (str text)
      (str/replace "&" "&amp;") (str/replace "<" "&lt;") (str/replace ">" "&gt;")
      (str/replace "\"" "&quot;")))

(defn- results [^File dir]
  (let [file (io/file dir "results.edn")]
    (if (.exists file)
      (try
        (with-open [in (PushbackReader. (io/reader file))]
          (edn/read {:default (fn [_ value] value)} in))
        (catch Exception e {:valid? :unreadable, :error (.getMessage e)}))
      {:valid? :not-judged})))

(defn- runs
  "Directories of runs, the newest first."
  [^File base]
  (->> (.listFiles base)
       (filter #(and (.isDirectory ^File %) (not= "latest" (.getName ^File %))))
       (mapcat (fn [^File test] (map vector (repeat test) (.listFiles test))))
       (filter (fn [[_ ^File run]]
                 (and (.isDirectory run) (re-matches #"\d{8}T.*" (.getName run)))))
       (sort-by (fn [[_ ^File run]] (.getName run)))
       reverse))

(defn- bad-checkers [results]
  (str/join ", " (for [[k v] results :when (and (map? v) (false? (:valid? v)))] (name k))))

(defn- row [[^File test ^File run]]
  (let [results (results run)
        broken? (str/includes? (.getName test) "broken-")
        valid?  (if broken?
                  (get-in results [:workload :valid?] (:valid? results))
                  (:valid? results))
        right?  (if broken? (false? valid?) (true? valid?))
        path    (str (.getName test) "/" (.getName run))
        stats   (:stats results)]
    (str "<tr class=\"" (if right? "right" "wrong") "\"><td>" (escape (.getName run)) "</td><td>"
         (escape (.getName test)) "</td><td>" (escape valid?)
         (when broken? " (broken on purpose)") "</td><td>" (escape (bad-checkers results))
         "</td><td>" (escape (:ok-count stats)) " of " (escape (:count stats)) "</td><td>"
         (str/join " " (for [file ["results.edn" "timeline.html" "latency-raw.png" "jepsen.log"]
                             :when (.exists (io/file run file))]
                         (str "<a href=\"" (escape path) "/" file "\">" file "</a>")))
         "</td></tr>\n")))

(def style
  (str "body{font:14px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:left}"
       "tr.right td:nth-child(3){background:#d8f0d8}tr.wrong td:nth-child(3){background:#f4c8c8}"))

(defn page [base]
  (str "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>fencelock: runs"
       "</title><style>" style "</style></head><body><h1>Runs on the Jepsen framework</h1>"
       "<p>Green is as it should be: valid, or found invalid where something was broken on purpose."
       "</p><table><tr><th>began</th><th>test</th><th>valid?</th><th>who says no</th>"
       "<th>operations ok</th><th>look at</th></tr>\n"
       (str/join (map row (runs base)))
       "</table></body></html>\n"))

(defn write!
  "Writes the page, and returns its path."
  []
  (let [base (io/file store/base-dir)
        file (io/file base "index.html")]
    (.mkdirs base)
    (spit file (page base))
    (.getPath file)))
