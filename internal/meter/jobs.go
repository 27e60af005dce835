package meter

// Job returns the counters of a job and makes them at the first call. It locks
// and searches: ask once when the job is built, not per request. The same name
// has the same counters for the life of the process, whatever is reloaded.
func (m *Meters) Job(name string) *Job {
	return m.jobs.get(name, func(name string) *Job { return &Job{Name: name} })
}

// Jobs lists the jobs that exist, ordered by name.
func (m *Meters) Jobs() []*Job { return m.jobs.list() }
