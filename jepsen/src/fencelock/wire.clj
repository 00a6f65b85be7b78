(ns fencelock.wire
  "RESP2 over a socket: what this suite speaks to nodes, storage and Redis. It needs Clojure alone.

  An exception says by :outcome what is known of the request: :refused (surely not done) or
  :unknown (it may have been done). The classes are those of docs/PROTOCOL.md, under Errors."
  (:require [clojure.string :as str])
  (:import (java.io BufferedInputStream BufferedOutputStream EOFException IOException InputStream
                    OutputStream)
           (java.net InetSocketAddress Socket)
           (java.nio.charset StandardCharsets)))

(defrecord ErrorReply [word text])

(def unknown-words "Errors after which the request may have been carried out." #{"UNCERTAIN"})

(defn connect
  "A connection. Throws with the outcome :refused when nobody is there."
  [host port timeout-ms]
  (let [socket (Socket.)]
    (try
      (.setTcpNoDelay socket true)
      (.connect socket (InetSocketAddress. ^String host (int port)) (int timeout-ms))
      (.setSoTimeout socket (int timeout-ms))
      {:socket socket
       :in     (BufferedInputStream. (.getInputStream socket))
       :out    (BufferedOutputStream. (.getOutputStream socket))
       :name   (str host ":" port)}
      (catch IOException e
        (.close socket)
        (throw (ex-info (str "no connection to " host ":" port ": " (.getMessage e))
                        {:outcome :refused, :word :unreachable} e))))))

(defn close! [conn]
  (when conn
    (.close ^Socket (:socket conn))))

(defn timeout!
  "How long to wait for bytes from now on."
  [conn ms]
  (.setSoTimeout ^Socket (:socket conn) (int ms)))

(defn- ascii ^bytes [^String s] (.getBytes s StandardCharsets/UTF_8))

(defn- put-request [^OutputStream out args]
  (.write out (ascii (str "*" (count args) "\r\n")))
  (doseq [arg args]
    (let [bytes (ascii (if (keyword? arg) (name arg) (str arg)))]
      (.write out (ascii (str "$" (alength bytes) "\r\n")))
      (.write out bytes)
      (.write out (ascii "\r\n"))))
  (.flush out))

(defn- get-byte [^InputStream in]
  (let [b (.read in)]
    (when (neg? b)
      (throw (EOFException. "the connection was closed")))
    b))

(defn- get-line [in]
  (let [line (StringBuilder.)]
    (loop []
      (let [b (get-byte in)]
        (cond (= b 13) (do (get-byte in) (str line))
              (< 65536 (.length line)) (throw (IOException. "a line without an end"))
              :else (do (.append line (char b)) (recur)))))))

(defn- get-bulk [^InputStream in length]
  (when-not (neg? length)
    (let [bytes (.readNBytes in length)]
      (when (< (alength bytes) length)
        (throw (EOFException. "the connection was closed in a reply")))
      (get-byte in)
      (get-byte in)
      (String. bytes StandardCharsets/UTF_8))))

(defn read-reply
  "One reply from a stream: nil, a number, a string, a vector, or an ErrorReply."
  [in]
  (let [line (get-line in)
        rest (subs line (min 1 (count line)))]
    (case (first line)
      \+ rest
      \- (let [[word text] (str/split rest #" " 2)]
           (->ErrorReply word (or text "")))
      \: (Long/parseLong rest)
      \$ (get-bulk in (Long/parseLong rest))
      \* (let [n (Long/parseLong rest)]
           (when-not (neg? n)
             (vec (repeatedly n #(read-reply in)))))
      (throw (IOException. (str "not RESP2: " (pr-str line)))))))

(defn send!
  "Sends a request and does not wait. When this throws, what was sent is not known."
  [conn & args]
  (try
    (put-request (:out conn) args)
    (catch IOException e
      (throw (ex-info (str (:name conn) ": " (.getMessage e)) {:outcome :unknown, :word :io} e)))))

(defn receive
  "The next reply or message. Throws with :outcome :unknown when the connection breaks or nothing
  comes in time, and on an error with the outcome that its word has."
  [conn]
  (let [reply (try
                (read-reply (:in conn))
                (catch IOException e
                  (throw (ex-info (str (:name conn) ": " (.getMessage e))
                                  {:outcome :unknown, :word :io} e))))]
    (if (instance? ErrorReply reply)
      (throw (ex-info (str (:name conn) ": " (:word reply) " " (:text reply))
                      {:outcome (if (unknown-words (:word reply)) :unknown :refused)
                       :word    (keyword (str/lower-case (:word reply)))
                       :text    (:text reply)}))
      reply)))

(defn call [conn & args]
  (apply send! conn args)
  (receive conn))

(defn fields
  "A reply that is a map in RESP2: key, value, key, value."
  [reply]
  (into {} (for [[k v] (partition 2 reply)] [(keyword k) v])))

(defn info-fields
  "The lines of INFO."
  [text]
  (into {} (for [line (str/split-lines text)
                 :let [[k v] (str/split line #":" 2)]
                 :when v]
             [(keyword k) v])))

(defn broken?
  "Whether this exception ends the connection: it cannot be used any more."
  [e]
  (contains? #{:io :unreachable} (:word (ex-data e))))
