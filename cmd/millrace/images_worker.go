package main

import (
	"os"

	"millrace/images/worker"
)

// workerVerb is what the server starts itself with to convert images. It is
// no verb for people.
const workerVerb = "images-worker"

// convertImages converts what comes in on the standard input.
func convertImages(s streams) int {
	if err := worker.Main(os.Stdin, os.Stdout); err != nil {
		s.say("millrace: converting images: %v\n", err)
		return exitFailure
	}
	return exitOK
}

// workerCommand is how this program is started as a worker; nil where it cannot
// be told.
func workerCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, workerVerb}
}
