package main

import (
	"errors"
	"fmt"
	"io/fs"

	"millrace/internal/config"
)

// checkCommand is `millrace check`.
type checkCommand struct {
	File string `arg:"" optional:"" default:"millrace.yaml" complete:"file" help:"The config. Default millrace.yaml."`
}

// Run reads the config as serve would, and says what is wrong with it.
func (c *checkCommand) Run(s streams) error {
	cfg, err := config.Load(c.File)
	if err != nil {
		return badConfig(c.File, err)
	}
	_, err = fmt.Fprintf(s.out, "%s: ok (%s, %s)\n", c.File, count(len(cfg.Sites), "site"), count(cfg.Routes(), "route"))
	return err
}

// badConfig puts a headline over the findings in a config.
func badConfig(file string, err error) error {
	if found, ok := errors.AsType[config.Findings](err); ok {
		if file == "" {
			return found
		}
		return fmt.Errorf("%s has %s\n\n%w", file, count(len(found), "mistake"), found)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if near := config.Near(file); near != "" {
			return failure{fmt.Errorf("there is no file %s", file), "did you mean " + near + "?"}
		}
		return failure{fmt.Errorf("there is no file %s", file), "`millrace init " + file + "` writes one to start from"}
	}
	return err
}
