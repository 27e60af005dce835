// Package record is the raw data of a run, as it is kept in bench/out: every
// figure of RESULTS.md is computed from it.
package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"millrace/bench/subjects/internal/metrics"
	"millrace/bench/subjects/internal/proc"
	"millrace/bench/subjects/internal/wrk"
)

// Run is everything that one run of a scenario measured. Durations are in
// nanoseconds, sizes in bytes.
type Run struct {
	Scenario string        `json:"scenario"`
	Quick    bool          `json:"quick"` // too short to be published
	Full     bool          `json:"full,omitempty"`
	Seed     uint64        `json:"seed"` // of the order of the slots
	Rounds   int           `json:"rounds"`
	Slot     time.Duration `json:"slot"` // of load in each
	Hold     time.Duration `json:"hold"` // of load before memory was read
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took"`
	Machine  proc.Machine  `json:"machine"`
	Versions []Version     `json:"versions"`
	Arms     []Arm         `json:"arms"`
	Small    []Small       `json:"small"`
	Large    []Large       `json:"large"`
	Memory   []Memory      `json:"memory"`
	Cases    []Case        `json:"cases,omitempty"`
	Tagged   uint64        `json:"tagged,omitempty"` // answers in a purge
	Floods   []Flood       `json:"floods,omitempty"`
	Images   *Images       `json:"images,omitempty"`
}

// Version is which version of a program took part.
type Version struct {
	Program string `json:"program"`
	Version string `json:"version"`
}

// Arm is a server as it was started.
type Arm struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Program string `json:"program"`
	Logs    bool   `json:"logs"`
	Variant bool   `json:"variant"`
	Ours    bool   `json:"ours"`
	Command string `json:"command"` // with placeholders for folders and ports
}

// Cell is what was asked of a server in a slot.
type Cell struct {
	Workload    string `json:"workload"` // the name of a workload
	Title       string `json:"title"`    // and its title
	Browser     bool   `json:"browser"`
	Connections int    `json:"connections"`
}

// Small is one slot of load with small files.
type Small struct {
	Cell
	Round  int             `json:"round"` // from 1
	Arm    string          `json:"arm"`
	Wrk    wrk.Result      `json:"wrk"`
	Server proc.CPU        `json:"server"` // CPU that the server used
	Wall   time.Duration   `json:"wall"`   // from reading Server before to after
	Other  time.Duration   `json:"other"`  // CPU that neither server nor wrk used in Wall
	Steal  time.Duration   `json:"steal"`  // CPU that the host took away in Wall
	Counts *metrics.Counts `json:"counts,omitempty"`
	Lines  int64           `json:"lines"` // written to the access log
	// Upstream is how many requests reached what stands behind the server.
	Upstream uint64 `json:"upstream,omitempty"`
}

// CPUPerRequest is what one answer cost the server.
func (s Small) CPUPerRequest() time.Duration {
	if s.Wrk.Requests == 0 {
		return 0
	}
	return s.Server.Total / time.Duration(s.Wrk.Requests)
}

// Large is one slot of downloads of the large file.
type Large struct {
	Round    int             `json:"round"`
	Arm      string          `json:"arm"`
	Network  string          `json:"network"` // tcp or unix
	Bytes    int64           `json:"bytes"`
	Duration time.Duration   `json:"duration"`
	Server   proc.CPU        `json:"server"`
	Counts   *metrics.Counts `json:"counts,omitempty"`
}

// CPUPerByte is in nanoseconds.
func (l Large) CPUPerByte() float64 { return float64(l.Server.Total) / float64(l.Bytes) }

// Memory is what a server held.
type Memory struct {
	Arm  string      `json:"arm"`
	Held proc.Memory `json:"held"` // under load, at the end of the time in Run.Hold
	Peak proc.Memory `json:"peak"` // the most in that time, of a reading every 0.9 s
	End  proc.Memory `json:"end"`  // after the whole run, no connection open
	Fail uint64      `json:"fail"` // failed requests in the time in Run.Hold
	Done uint64      `json:"done"` // answered ones
}

// Case is one run of a case with one cache: see package cache.
type Case struct {
	Name   string             `json:"name"`
	Round  int                `json:"round"` // from 1
	Arm    string             `json:"arm"`
	Values map[string]float64 `json:"values"` // times in ms, numbers of requests
}

// Flood is what a cache held while it was asked for ever other URLs.
type Flood struct {
	Arm      string        `json:"arm"`
	Budget   uint64        `json:"budget"`  // bytes that its answers might take
	Size     int           `json:"size"`    // of each answer's body
	URLs     uint64        `json:"urls"`    // asked for at first
	Filled   time.Duration `json:"filled"`  // when these were answered
	Took     time.Duration `json:"took"`    // with what came after
	Done     uint64        `json:"done"`    // URLs in all
	Failed   uint64        `json:"failed"`  // of them
	Reached  uint64        `json:"reached"` // the API
	Readings []Reading     `json:"readings"`
}

// Reading is a server's memory at one moment.
type Reading struct {
	At   time.Duration `json:"at"`   // since the first request
	Done uint64        `json:"done"` // requests answered until then
	proc.Memory
}

// Save writes r into dir as SCENARIO-TIME.json and returns the file's name.
func Save(dir string, r *Run) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("saving the raw data: %w", err)
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return "", fmt.Errorf("saving the raw data: %w", err)
	}
	name := filepath.Join(dir, r.Scenario+"-"+r.Started.UTC().Format("20060102T150405Z")+".json")
	if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("saving the raw data: %w", err)
	}
	return name, nil
}

// Load reads what Save wrote.
func Load(name string) (*Run, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading raw data: %w", err)
	}
	var r Run
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("reading raw data from %s: %w", name, err)
	}
	return &r, nil
}
