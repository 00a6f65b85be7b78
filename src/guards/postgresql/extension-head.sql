\echo Use "CREATE EXTENSION fencelock" to load this file. \quit
