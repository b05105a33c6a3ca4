package main

import (
	"os"
	"testing"
	"time"
)

func TestProcessCPU(t *testing.T) {
	before, ok := processCPU(os.Getpid(), true)
	if !ok || before <= 0 || before > time.Hour {
		t.Fatalf("%v, %v", before, ok)
	}
	if after, ok := processCPU(os.Getpid(), false); !ok || after < before {
		t.Errorf("%v after %v", after, before)
	}
	if _, ok := processCPU(1<<22+1, false); ok {
		t.Error("a process that cannot be has used CPU time")
	}
}

func TestParseRSSAnon(t *testing.T) {
	got, ok := parseRSSAnon([]byte("VmRSS:\t  100 kB\nRssAnon:\t    2048 kB\nRssFile:\t 1 kB\n"))
	if !ok || got != 2<<20 {
		t.Errorf("%d, %v", got, ok)
	}
	if _, ok := parseRSSAnon([]byte("VmRSS: 1 kB\n")); ok {
		t.Error("found where it is not")
	}
	if got, ok := anonymousMemory(os.Getpid()); !ok || got <= 0 {
		t.Errorf("own memory: %d, %v", got, ok)
	}
}
