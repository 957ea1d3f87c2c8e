package main

import "context"

func agentChild(context.Context) error { return nil }
