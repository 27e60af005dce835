package admin

import (
	"encoding/json"
	"net/http"
	"os"
)

// ProcessPath is where the listener says which process it is.
const ProcessPath = "/process"

// Process is a process as it sees itself. Numbers of processes in different
// namespaces, of containers, say nothing about each other.
type Process struct {
	PID       int    `json:"pid"`
	Namespace string `json:"namespace"` // as Linux names it; "" where there are none, or it is not known
}

// OwnProcess is this process.
func OwnProcess() Process {
	name, _ := os.Readlink("/proc/self/ns/pid") // "" is what is known then
	return Process{os.Getpid(), name}
}

func process() http.HandlerFunc {
	own := OwnProcess()
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(own) // it always encodes; the rest is the client's loss
	}
}
