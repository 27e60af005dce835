package config

import (
	"fmt"
	"os"
)

// Load reads and checks the file at path, with settings on top. The error is
// of type [Findings] unless the file could not be read at all.
func Load(path string, settings ...Setting) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, settings...)
}

// LogFormat is the log.format of a file that may have mistakes elsewhere: whoever
// reads the log as JSON reads of them, too. "" where that cannot be told.
func LogFormat(path string) string {
	data, err := readFile(path)
	if err != nil {
		return ""
	}
	cfg := &Config{}
	if doc, body := parse(path, data); body != nil {
		newDecoder(doc).document(body, cfg)
	}
	return cfg.Log.Format
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the config %s: %w", path, err)
	}
	return data, nil
}
