(defproject fencelock.jepsen "0.1.0"
  :description "Tests of fencelock on the Jepsen framework"
  :license {:name "Apache-2.0"}
  :dependencies [[org.clojure/clojure "1.12.0"]
                 [jepsen "0.3.9"]]
  :source-paths ["src"]
  :test-paths ["test"]
  :main fencelock.jepsen.main
  :jvm-opts ["-Djava.awt.headless=true" "-server" "-Xmx4g"])
