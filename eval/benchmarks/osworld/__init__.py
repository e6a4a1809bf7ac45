"""Task files in OSWorld's format. `tasks` reads them, `needs` says what each needs, `machine` what is here.
`environment` makes desktops for them: `steps` prepares a desktop over the protocol of its server
(`served`), and `judging` has the public evaluators judge it in an interpreter of their own (`judge_program`).
`eval.osworld` lists what can run, and does it while nobody acts."""
