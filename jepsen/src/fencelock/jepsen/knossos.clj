(ns fencelock.jepsen.knossos
  "The models of fencelock.model as Knossos asks for them. It remembers steps by :f and :value
  alone, so the owner of an operation on a lock stands in its value."
  (:require [fencelock.model :as model]
            [knossos.model :as knossos])
  (:import (knossos.model Model)))

(defn- answer [state make]
  (if (:wrong state)
    (knossos/inconsistent (:wrong state))
    (make state)))

(defrecord Lock [state]
  Model
  (step [_ op]
    (answer (model/lock-step state (:owner (:value op)) (:f op) (:value op)) ->Lock)))

(defrecord Register [state]
  Model
  (step [_ op]
    (answer (model/register-step state (:f op) (:value op)) ->Register)))

(defn lock [] (->Lock model/free-lock))
(defn register [] (->Register model/empty-register))
