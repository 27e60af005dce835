package record

import (
	"time"

	"millrace/bench/subjects/internal/proc"
)

// Images is what bench/run images measured; a part that was not asked for has
// nothing.
type Images struct {
	Parts       []string       `json:"parts"`
	Photos      []Photo        `json:"photos"`
	Conversions []Conversion   `json:"conversions,omitempty"`
	Folders     []FolderRun    `json:"folders,omitempty"`
	Scores      []Score        `json:"scores,omitempty"`
	Timelines   []Timeline     `json:"timelines,omitempty"`
	Thousands   []Thousand     `json:"thousands,omitempty"`
	Cached      []CachedPhoto  `json:"cached,omitempty"`
	Crowds      []Crowd        `json:"crowds,omitempty"`
	Refusals    []Refusal      `json:"refusals,omitempty"`
	Commands    []ImageCommand `json:"commands"`
	Notes       []string       `json:"notes,omitempty"` // of what was left out
}

// Photo is a photograph of the folder that is converted.
type Photo struct {
	Name       string  `json:"name"`    // in the folder
	Package    string  `json:"package"` // of Debian
	Kind       string  `json:"kind"`    // "baseline 4:2:0"
	Profile    bool    `json:"profile"` // it has an ICC profile
	Width      int     `json:"width"`
	Height     int     `json:"height"`
	Bytes      int64   `json:"bytes"`
	Megapixels float64 `json:"megapixels"`
	Hash       string  `json:"hash"`
}

// Conversion is one photograph converted once.
type Conversion struct {
	Round   int           `json:"round"` // from 1
	Arm     string        `json:"arm"`
	Photo   string        `json:"photo"`
	CPU     time.Duration `json:"cpu"`
	Took    time.Duration `json:"took"`
	Bytes   int64         `json:"bytes"`           // of the file
	Picture int64         `json:"picture"`         // of them without profile and metadata
	Hash    string        `json:"hash"`            // of the WebP
	Fault   string        `json:"fault,omitempty"` // it was no WebP
}

// FolderRun is all photographs converted one after the other.
type FolderRun struct {
	Round   int           `json:"round"` // from 1
	Arm     string        `json:"arm"`
	CPU     time.Duration `json:"cpu"`     // from two readings, before the first and after the last
	Harness time.Duration `json:"harness"` // CPU of the client, which is the harness
	Busy    time.Duration `json:"busy"`    // CPU of all that ran on the machine
	Steal   time.Duration `json:"steal"`   // CPU that the host took away
	Wall    time.Duration `json:"wall"`
}

// Score is the SSIMULACRA2 of one WebP against its photograph.
type Score struct {
	Photo string  `json:"photo"`
	Hash  string  `json:"hash"` // of the WebP
	Value float64 `json:"value"`
}

// Timeline is CPU and memory while the folder is converted.
type Timeline struct {
	Arm      string        `json:"arm"`
	Photos   int           `json:"photos"`
	Took     time.Duration `json:"took"` // until the last answer
	Readings []ImageUse    `json:"readings"`
	Before   proc.Memory   `json:"before"` // of the server alone, before the first
	Server   proc.Memory   `json:"server"` // alone, when the workers had had time to end
	// Anonymous is the part of Server that is no page of a file: what the server
	// itself has asked for.
	Anonymous uint64        `json:"anonymous"`
	Workers   int           `json:"workers"` // processes beside the server at that time
	Settled   time.Duration `json:"settled"` // so long after the last answer
}

// ImageUse is what a server and its workers use at one moment.
type ImageUse struct {
	At     time.Duration `json:"at"`
	Done   int           `json:"done,omitempty"` // conversions until then
	CPU    time.Duration `json:"cpu"`            // since the first reading, workers included
	Server uint64        `json:"server"`         // RSS of the server alone, bytes
	All    uint64        `json:"all"`            // and with its workers
}

// Thousand is many conversions in a row.
type Thousand struct {
	Arm      string        `json:"arm"`
	Asked    int           `json:"asked"`
	Distinct int           `json:"distinct"` // pictures, each converted again when it has changed
	Failed   int           `json:"failed"`
	Counted  uint64        `json:"counted"` // conversions by the server's own count
	Took     time.Duration `json:"took"`
	Readings []ImageUse    `json:"readings"`
}

// CachedPhoto is a photograph whose variant is served.
type CachedPhoto struct {
	Workload string `json:"workload"`
	Photo    string `json:"photo"`
	Bytes    int64  `json:"bytes"` // of the WebP
}

// Crowd is many clients that ask for unconverted photographs at once.
type Crowd struct {
	Arm       string        `json:"arm"`
	Clients   int           `json:"clients"`
	Pictures  int           `json:"pictures"`
	Requests  int           `json:"requests"`
	Failed    int           `json:"failed"`
	Originals int           `json:"originals"` // answers that were the original
	Variants  int           `json:"variants"`
	Slowest   time.Duration `json:"slowest"`   // answer to a client
	Converted uint64        `json:"converted"` // by the server's own count
	Broken    uint64        `json:"broken"`    // conversions that failed
	Shed      uint64        `json:"shed"`
	Took      time.Duration `json:"took"`    // until the last conversion
	Budget    uint64        `json:"budget"`  // bytes that conversions may take
	Peak      ImageUse      `json:"peak"`    // the most of each, not at the same moment
	Workers   uint64        `json:"workers"` // the most RSS of the workers together
	Rate      float64       `json:"rate"`    // of the requests for a small file
	Idle      Latency       `json:"idle"`
	During    Latency       `json:"during"`
}

// Latency of a small file at a fixed rate, from the moment a request was due.
type Latency struct {
	Requests uint64        `json:"requests"`
	Failed   uint64        `json:"failed"`
	Late     uint64        `json:"late"` // sent late by the generator
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
	Max      time.Duration `json:"max"`
}

// Refusal is one run of ab on a URL that is not served.
type Refusal struct {
	Round    int           `json:"round"` // from 1
	Arm      string        `json:"arm"`
	Case     string        `json:"case"`
	Status   int           `json:"status"`
	Requests uint64        `json:"requests"`
	Failed   uint64        `json:"failed"` // connections and lengths, as ab counts
	Kept     uint64        `json:"kept"`   // keep-alive requests
	Rate     float64       `json:"rate"`
	CPU      time.Duration `json:"cpu"` // of the server
}

// ImageCommand is how something was started.
type ImageCommand struct {
	Name    string `json:"name"`
	Command string `json:"command"` // with placeholders for folders and ports
	Config  string `json:"config,omitempty"`
}
