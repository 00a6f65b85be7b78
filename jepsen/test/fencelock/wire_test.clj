(ns fencelock.wire-test
  "The wire client: on bytes, against a server that misbehaves, and against real servers."
  (:require [clojure.java.io :as io]
            [clojure.string :as str]
            [clojure.test :refer [deftest is testing]]
            [fencelock.wire :as wire])
  (:import (java.io ByteArrayInputStream IOException)
           (java.lang ProcessBuilder$Redirect)
           (java.net InetAddress ServerSocket)
           (java.nio.file Files)
           (java.nio.file.attribute FileAttribute)))

(defn- parse [text] (wire/read-reply (ByteArrayInputStream. (.getBytes ^String text "UTF-8"))))

(deftest replies
  (is (= "OK" (parse "+OK\r\n")))
  (is (= 9007199254740991 (parse ":9007199254740991\r\n")))
  (is (nil? (parse "$-1\r\n")))
  (is (nil? (parse "*-1\r\n")))
  (is (= "" (parse "$0\r\n\r\n")))
  (is (= "a\r\nb" (parse "$4\r\na\r\nb\r\n")))
  (is (= ["x" [1 nil] []] (parse "*3\r\n$1\r\nx\r\n*2\r\n:1\r\n$-1\r\n*0\r\n")))
  (is (= (wire/->ErrorReply "STALE" "token 16 is below") (parse "-STALE token 16 is below\r\n")))
  (testing "what is cut short, and what is no RESP2"
    (doseq [text ["" "+OK" "$4\r\nab" "*2\r\n:1\r\n" "!x\r\n" "$x\r\n"]]
      (is (thrown? Exception (parse text)) (pr-str text))))
  (testing "a line that never ends"
    (is (thrown? IOException (parse (apply str "+" (repeat 70000 "x")))))))

(defn- outcome [f]
  (try (f) :answered
       (catch clojure.lang.ExceptionInfo e
         (select-keys (ex-data e) [:outcome :word]))))

(defn- with-server
  "Calls f with the port of a server that treats its one connection so."
  [treat f]
  (with-open [server (ServerSocket. 0 1 (InetAddress/getLoopbackAddress))]
    (let [served (future (with-open [s (.accept server)] (treat s)))]
      (try (f (.getLocalPort server))
           (finally (future-cancel served))))))

(defn- says [text]
  (fn [socket]
    (.read (.getInputStream socket) (byte-array 4096))
    (.write (.getOutputStream socket) (.getBytes ^String text "UTF-8"))
    (.flush (.getOutputStream socket))))

(defn- ask [port]
  (let [conn (wire/connect "127.0.0.1" port 5000)]
    (try (wire/call conn "PING")
         (finally (wire/close! conn)))))

(deftest outcomes
  (testing "nobody is there: surely not done"
    (let [port (with-open [s (ServerSocket. 0)] (.getLocalPort s))]
      (is (= {:outcome :refused, :word :unreachable} (outcome #(ask port))))))
  (testing "closed without an answer: it may have been done"
    (with-server (says "") #(is (= {:outcome :unknown, :word :io} (outcome (partial ask %))))))
  (testing "an answer that is cut short"
    (with-server (says "$10\r\nabc")
      #(is (= {:outcome :unknown, :word :io} (outcome (partial ask %))))))
  (testing "refused, and not known"
    (with-server (says "-NOLEADER nobody leads\r\n")
      #(is (= {:outcome :refused, :word :noleader} (outcome (partial ask %)))))
    (with-server (says "-UNCERTAIN leadership was lost\r\n")
      #(is (= {:outcome :unknown, :word :uncertain} (outcome (partial ask %)))))))

;; --- real servers -------------------------------------------------------------------------------

(defn- start
  "[process port] of a server of the build directory, or nil when there is no build directory."
  [program dir & more]
  (when-let [build (System/getenv "FENCELOCK_BUILD")]
    (let [words   (into [(str build "/src/cli/" program) "--listen" "127.0.0.1:0"
                         "--data" (str dir "/" program)] more)
          process (-> (ProcessBuilder. ^java.util.List words)
                      (.redirectError ProcessBuilder$Redirect/DISCARD)
                      .start)
          ready   (.readLine (io/reader (.getInputStream process)))]
      [process (parse-long (last (str/split ready #":")))])))

(defn- free-port []
  (with-open [listener (ServerSocket. 0 1 (InetAddress/getLoopbackAddress))]
    (.getLocalPort listener)))

(defn- with-real [program f & more]
  (let [dir (str (Files/createTempDirectory "fencelock-wire" (make-array FileAttribute 0)))]
    (when-let [[process port] (apply start program dir more)]
      (try
        (let [conn (wire/connect "127.0.0.1" port 10000)]
          (try (f conn)
               (finally (wire/close! conn))))
        (finally
          (.destroyForcibly process)
          (.waitFor process)
          (doseq [file (reverse (file-seq (io/file dir)))]
            (io/delete-file file true)))))))

(deftest a-real-node
  (with-real "fencelockd"
    (fn [conn]
      (let [owner "owner-of-the-wire-test"
            token (wire/call conn "ACQUIRE" "a" "OWNER" owner "TTL" 60000)]
        (is (pos? token))
        (is (nil? (wire/call conn "ACQUIRE" "a" "OWNER" "another-owner-of-it" "TTL" 60000)))
        (is (= token (wire/call conn "ACQUIRE" "a" "OWNER" owner "TTL" 60000)))
        (is (= {:token token, :state "held"}
               (select-keys (wire/fields (wire/call conn "SHOW" "a")) [:token :state])))
        (is (= "1" (:node_id (wire/info-fields (wire/call conn "INFO")))))
        (is (= {:outcome :refused, :word :err} (outcome #(wire/call conn "ACQUIRE"))))
        (is (= 1 (wire/call conn "RELEASE" "a" token)))
        (is (= 0 (wire/call conn "CHECK" "a" token)))))
    ;; Its usual port for other nodes may belong to another one on this machine.
    "--peer" (str "127.0.0.1:" (free-port))))

(deftest a-real-storage
  (with-real "fencelock-store"
    (fn [conn]
      (is (= "OK" (wire/call conn "SET" "k" "v" "FENCE" "l" 7)))
      (is (= "v" (wire/call conn "GET" "k" "FENCE" "l" 9)))
      (is (= {:outcome :refused, :word :stale}
             (outcome #(wire/call conn "SET" "k" "w" "FENCE" "l" 8))))
      (is (= 9 (wire/call conn "MARK" "l"))))))
