module fencelock-porcupine

go 1.22

require github.com/anishathalye/porcupine v1.0.3
