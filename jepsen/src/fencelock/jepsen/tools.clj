(ns fencelock.jepsen.tools
  "Programs that draw pictures, which may be missing."
  (:require [clojure.java.io :as io]
            [clojure.string :as str]))

(defn installed? [program]
  (some #(.canExecute (io/file % program)) (str/split (System/getenv "PATH") #":")))
