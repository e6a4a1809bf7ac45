"""Runs as jobs of an Azure ML workspace (docs/explanation/azure.md): one command job for each role of a run.

names    names and properties of jobs
script   the command of a job
render   job -> command jobs as YAML; reads a rendered file back
rest     command job -> the body of the request that creates it
"""
