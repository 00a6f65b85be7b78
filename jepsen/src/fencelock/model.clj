(ns fencelock.model
  "What a lock and a fenced register may do, one operation at a time. Each step is a function of a
  state, who asks, :f and a value; it returns the next state, or a map with :wrong. Knossos drives
  them in fencelock.jepsen.knossos; here they need Clojure alone.

  A value says what is known. An acquire without :token is one whose outcome is unknown, with :token
  nil one that was answered nil.")

(defn- wrong [& words] {:wrong (apply str words)})

;; --- a lock: alone, shared, or a semaphore ------------------------------------------------------

(def free-lock
  "holders: {owner token}; a token that nobody was told is {:above n}, n being the largest that was
  told before it. last: the largest told."
  {:holders {}, :mode nil, :last 0})

(def ^:private unknown? map?)

(defn- room? [{:keys [holders mode]} {wanted :mode, permits :permits}]
  (or (empty? holders)
      (and (= :shared mode wanted))
      (and (= :permits mode wanted) (< (count holders) permits))))

(defn- told
  "The owner was told this token: it held it already, or is granted it now."
  [{:keys [holders last] :as state} owner {:keys [token mode] :as value}]
  (let [held (get holders owner)]
    (cond
      (= held token)
      state

      (and held (not (unknown? held)))
      (wrong owner " holds " held " and is told " token)

      ; Others may have been granted the lock, beside it, before its token was told.
      (<= token (if held (:above held) last))
      (wrong "token " token " after " (if held (:above held) last))

      (or held (room? state value))
      (assoc state :holders (assoc holders owner token), :mode mode, :last (max last token))

      :else
      (wrong owner " is granted what " (keys holders) " hold"))))

(defn- acquire [{:keys [holders] :as state} owner value]
  (cond
    (:token value)
    (told state owner value)

    (contains? value :token)
    (if (or (get holders owner) (room? state value))
      (wrong owner " is refused what it holds, or what is free")
      state)

    (or (get holders owner) (not (room? state value)))
    state

    :else
    (assoc state :holders (assoc holders owner {:above (:last state)}), :mode (:mode value))))

(defn- without [{:keys [holders] :as state} owner]
  (let [left (dissoc holders owner)]
    (assoc state :holders left, :mode (when (seq left) (:mode state)))))

(defn- release [{:keys [holders] :as state} owner {:keys [token done]}]
  (let [held (get holders owner)]
    (cond
      (nil? done) (if held (without state owner) state)
      (and done (or (= held token) (unknown? held))) (without state owner)
      done (wrong owner " gives back " token " and holds " held)
      (= held token) (wrong owner " holds " token " and may not give it back")
      :else state)))

(defn- check [{:keys [holders] :as state} owner {:keys [token held]}]
  (cond
    (nil? held) state
    (= held (or (unknown? (get holders owner)) (= token (get holders owner)))) state
    :else (wrong "check of " token " says " held ", and " owner " holds " (get holders owner))))

(defn lock-step
  "owner: who asks. :acquire {:token :mode :permits}, :release {:token :done},
  :check {:token :held}"
  [state owner f value]
  (case f
    :acquire (acquire state owner value)
    :release (release state owner value)
    :check   (check state owner value)))

;; --- a register of the storage, guarded by tokens -----------------------------------------------

(def empty-register {:mark 0, :value nil})

(defn- fenced [{:keys [mark] :as state} {:keys [token stale]} next-state]
  (cond
    stale (if (< token mark) state (wrong token " is refused, and the mark is " mark))
    (< token mark) (wrong token " is accepted below the mark " mark)
    :else (assoc next-state :mark token)))

(defn register-step
  ":write {:token :value :stale}, :read {:token :value :stale}, :look {:value} (without a token).
  A value without :stale is of unknown outcome."
  [{:keys [mark value] :as state} f {:keys [token] :as asked}]
  (let [known? (contains? asked :stale)]
    (case f
      :write (cond
               known? (fenced state asked (assoc state :value (:value asked)))
               (< token mark) state
               :else {:mark token, :value (:value asked)})
      :read  (cond
               (not known?) (if (< token mark) state (assoc state :mark token))
               (or (:stale asked) (= value (:value asked))) (fenced state asked state)
               :else (wrong "read " (:value asked) ", and it holds " value))
      :look  (cond
               (not known?) state
               (= value (:value asked)) state
               :else (wrong "looked at " (:value asked) ", and it holds " value)))))
