"""A user's script: a small unsharded model; rank `FAIL_RANK` raises in step 4."""

import os

import torch

import trainmaster.training as tm


def main() -> None:
    torch.set_num_threads(1)
    with tm.session() as session:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        started = session.restore(model=model, optimizer=optimizer)
        for step in session.steps(total=6):
            if step == 4 and os.environ.get("FAIL_RANK") == str(session.rank):
                raise ValueError("a defect of the script")
            loss = model(torch.full((2, 4), float(step))).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.report(step, loss=loss.item(), samples=session.samples + 2)
        print(f"rank {session.rank} of {session.world} from {started} to {step}", flush=True)


if __name__ == "__main__":
    main()
